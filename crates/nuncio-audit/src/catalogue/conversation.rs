//! Checks that send messages, and of the tasks that follow.

use super::checks;

checks! { SEND Send "send"
    "empty-params" Should [18] ("5.7", "6.11.1") Send Interface ANY
    "A send without a message is refused"
    "A client with a mistake believes that its message arrived."
    "Answer params without message with invalid params.";
    "empty-parts" Must [19] ("3.3.2", "") Send Interface ANY
    "A message without parts is refused"
    "The agent would work on nothing."
    "Answer a message with empty parts with invalid params.";
    "two-members" Must [20] ("4.1.6", "") Send Interface JSON
    "A part with two kinds of content is refused"
    "Agents would disagree on which of them counts."
    "Answer a part with both text and data with invalid params.";
    "unknown-task" Must [97] ("3.4.2", "7.1") Send Interface ANY
    "A message to an unknown task gives TaskNotFoundError"
    "The agent would invent a task under the id of a client, or begin a new conversation."
    "Answer with TaskNotFoundError if message.taskId is not known.";
    "shape" Must [36 37] ("3.1.1", "7.1") Send Interface ANY
    "The answer is a task or a message, in the form of the version"
    "Clients decode the answer by its form, and lose it otherwise."
    "Answer {\"task\":…} or {\"message\":…} (1.0), or the object itself with kind (0.3).";
    "members" Must [12 21] ("5.5", "6.1") Send Interface JSON
    "Objects have the member names of the version, and every required member"
    "Clients do not find members under other names."
    "Write lowerCamelCase names, and every required member even if it is empty.";
    "names" Must [13] ("5.5", "6.3") Send Interface JSON
    "States and roles have the names of the version"
    "Clients do not know the state of the task."
    "Write TASK_STATE_COMPLETED and ROLE_AGENT (1.0), or completed and agent (0.3).";
    "timestamps" Must [14 16] ("5.6.1", "") Send Interface JSON
    "Timestamps are in UTC, with Z"
    "Clients sort and filter by them, and misread other forms."
    "Write timestamps as 2026-01-31T12:00:00.000Z.";
    "precision" Should [15] ("5.6.1", "") Send Interface JSON
    "Timestamps have milliseconds"
    "Events within a second cannot be ordered."
    "Write three digits after the seconds.";
    "base64" Must [17] ("4.1.6", "6.6.1") Send Interface JSON
    "File content is base64"
    "Clients cannot decode the file."
    "Encode bytes as standard base64 with padding.";
    "context" Must [101] ("3.4.1", "6.1") Send Interface ANY
    "The answer has a context id"
    "Clients cannot continue the conversation."
    "Generate a contextId if the message has none, and return it.";
    "blocks" Must [94] ("3.2.2", "") Send Interface ANY
    "A send waits until the task has ended or asks for input"
    "Clients take the first state for the answer, and never see the result."
    "Wait for a terminal or interrupted state unless returnImmediately is true.";
    "immediate" Must [96] ("3.2.2", "7.1.1") Send Interface ANY
    "returnImmediately returns before the task has ended"
    "Clients that poll or subscribe wait for the whole task instead."
    "Return the task as soon as it exists; in 0.3 for blocking false.";
    "context-mismatch" Must [103] ("3.4.3", "") Send Interface ANY
    "A context id that is not the task's is refused"
    "Messages would leave their conversation, and perhaps enter that of another."
    "Answer with invalid params if message.contextId is not that of message.taskId.";
    "media-type" Must [105] ("3.1.1", "8.2") Send Interface ANY
    "A part of an unsupported media type gives ContentTypeNotSupportedError"
    "The agent works on content that it cannot read, and the client does not learn it."
    "Compare the media types of parts with the input modes of the card, and answer -32005.";
}

checks! { TASK Task "task"
    "get" Must [111] ("3.1.3", "7.3") Send Interface ANY
    "GetTask returns the task that was answered"
    "Clients that poll see another result than clients that wait."
    "Return the same status and artifacts as the send.";
    "history" Must [113 114] ("3.2.4", "7.3") Send Interface ANY
    "historyLength limits the history to the latest messages"
    "Answers become as large as the whole conversation."
    "Return at most historyLength messages, the latest ones.";
    "history-zero" Should [115] ("3.2.4", "") Send Interface ANY
    "historyLength 0 omits the history"
    "Clients that need the status only pay for the history."
    "Leave out the history if historyLength is 0.";
    "history-negative" Must [116] ("3.2.4", "") Send Interface ANY
    "A negative historyLength is refused"
    "Clients with a mistake get an arbitrary history."
    "Answer a negative historyLength with invalid params.";
    "cancel" Must [128] ("3.1.5", "7.4") Send Interface ANY
    "Cancel of a running task returns the task"
    "Clients cannot stop work that nobody needs."
    "Stop the task, and return it with its new state.";
    "cancel-ended" Must [129] ("3.1.5", "8.2") Send Interface ANY
    "Cancel of an ended task gives TaskNotCancelableError"
    "A finished task would change, or its result be lost."
    "Answer with TaskNotCancelableError (-32002) if the state is terminal.";
    "cancel-twice" Must [131] ("3.3.1", "") Send Interface ANY
    "A second cancel changes nothing"
    "A client that repeats a cancel after a timeout would revive or change the task."
    "Answer the second cancel with the canceled task, or with TaskNotCancelableError.";
    "message-ended" Must [98 99] ("3.1.1", "7.1") Send Interface ANY
    "A message to an ended task is refused"
    "A task that other parties believe to be finished would change again."
    "Answer with UnsupportedOperationError (-32004) if the state is terminal; in 0.3 any error.";
    "subscribe-ended" Must [144] ("3.1.6", "") Send Interface ANY
    "Subscribe to an ended task gives UnsupportedOperationError"
    "Clients would hold a stream open on which nothing ever comes."
    "Answer with UnsupportedOperationError (-32004) if the state is terminal.";
    "same" Must [6] ("5.1", "3.4.1") Send Interface ANY
    "The task is the same over every interface"
    "Clients over different bindings see different results of the same task."
    "Serve all interfaces from the same tasks, and translate without loss.";
}
