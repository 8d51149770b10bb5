//! Checks of streams.

use super::checks;

checks! { STREAM Stream "stream"
    "opens" Must [133] ("3.1.2", "3.3.1") Send Interface ANY
    "A stream opens, with the type text/event-stream"
    "Clients that were promised a stream wait for the whole task, or fail."
    "Answer streaming operations with status 200 and text/event-stream; over gRPC with a stream of messages.";
    "envelope" Must [38 54] ("9.4.2", "3.3.1") Send Interface JSON
    "Each event is a whole response"
    "Clients cannot decode events without their envelope, or with the wrong one."
    "JSON-RPC: each data is a response with the id of the request. HTTP+JSON: each data is the event itself.";
    "first" Must [134 135] ("3.1.2", "") Send Interface ANY
    "A stream begins with the task, or is one message"
    "Clients do not know the task of the updates that follow."
    "Send the task first; an agent that answers with a message sends only that.";
    "order" Must [136] ("3.1.2", "") Send Interface ANY
    "After the task come updates of it only"
    "Clients attribute events to the wrong task, or stop reading."
    "Send status and artifact updates of this task after the first event.";
    "kind" Must [147 148 149] ("4.2", "7.2.2") Send Interface JSON
    "Events have the discriminators of the version"
    "Clients decide by them what an event is, and when a stream ends."
    "1.0: neither kind nor final. 0.3 over JSON-RPC: kind on every event, and final on the last status.";
    "chunks" Must [150] ("4.2.2", "7.2.3") Send Interface ANY
    "Chunks of artifacts begin with a whole, and end once"
    "Clients assemble artifacts by append and lastChunk, and lose text otherwise."
    "Send the first chunk of an artifact without append, later ones with it, and none after lastChunk.";
    "terminal" Must [138] ("3.1.2", "7.2") Send Interface ANY
    "The last status is on the stream"
    "Clients do not know whether the task succeeded."
    "Send the terminal or interrupted status before the stream ends.";
    "closes" Must [137] ("3.1.2", "7.2") Send Interface ANY
    "The stream ends after a terminal status"
    "Clients wait for ever, and connections pile up."
    "Close the stream after the terminal status.";
    "readers" Must [140 142] ("3.5.2", "") Send Interface ANY
    "Two streams of one task have the same events in the same order"
    "Two viewers of one task see different results."
    "Send every event to every stream of the task, in the order of generation.";
    "leaving" Must [141] ("3.5.2", "7.2") Send Interface ANY
    "A client that leaves stops nothing"
    "A lost connection destroys the work of the agent."
    "Do not bind the task to the connection of its client.";
    "resume" May [] ("3.5.2", "7.9") Send Interface JSON
    "Events have ids to resume after"
    "The specification does not define Last-Event-ID; agents with ids can replay what a client missed."
    "Nothing has to be changed.";
}
