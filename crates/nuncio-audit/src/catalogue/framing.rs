//! Checks of the framing of each binding, and of the negotiation of versions.

use super::checks;

checks! { RPC Rpc "rpc"
    "parse" Must [26] ("9.5", "6.11.2") Look Interface RPC
    "Malformed JSON gives -32700 with id null"
    "Clients cannot tell a broken request from a broken agent."
    "Answer a body that is not JSON with error -32700 and id null.";
    "member" Must [25] ("9.3", "6.11.1") Look Interface RPC
    "A request without jsonrpc 2.0 gives -32600"
    "Requests of other protocols would be executed by accident."
    "Check that the member jsonrpc is the string 2.0, and answer -32600 otherwise.";
    "method" Must [27] ("9.5", "8.1") Look Interface RPC
    "An unknown method gives -32601"
    "Clients detect missing operations by this code."
    "Answer unknown methods with error -32601.";
    "params" Must [28] ("9.5", "8.1") Look Interface RPC
    "Invalid params give -32602"
    "Clients cannot tell their own mistake from a failure of the agent, and retry in vain."
    "Answer params of a wrong type with error -32602.";
    "id" Must [29] ("9.3", "6.11.2") Look Interface RPC
    "The response has the id of the request, string or number"
    "Clients match answers by their id; another value or type loses the answer."
    "Copy the id of the request into the response, with its type.";
    "either" Must [30] ("9.3", "6.11.2") Look Interface RPC
    "A response has either result or error, and jsonrpc 2.0"
    "A response with both, or without either, is not JSON-RPC 2.0, and clients refuse it."
    "Write exactly one of result and error, and jsonrpc.";
    "content-type" Must [31] ("9.1", "3.2.1") Look Interface RPC
    "Responses have the type application/json"
    "HTTP libraries refuse to decode another type as JSON."
    "Send Content-Type: application/json with responses that are no stream.";
    "unknown-member" Should [10] ("5.7", "") Look Interface JSON
    "Unknown members of a request are ignored"
    "Clients of later versions would be refused because of members that the agent does not need."
    "Ignore members that the agent does not know.";
}

checks! { HTTP Http "http"
    "routes" Must [42 43] ("11.3", "3.5.3") Look Interface HTTP
    "The routes of the binding exist"
    "Clients build paths from the specification; another path cannot be found."
    "Serve every route below the URL of the interface; in 0.3 below /v1.";
    "subscribe" May [45] ("11.3.2", "3.5.6") Look Interface HTTP
    "Subscribe by GET and by POST"
    "The prose of the specification says POST, its proto GET; clients use either."
    "Accept both methods at /tasks/{id}:subscribe.";
    "error-shape" Must [55] ("11.6", "") Look Interface HTTP
    "Errors are a status object below error, with the HTTP status as code"
    "Clients read code, status and message from there, and show nothing otherwise."
    "Answer errors with {\"error\":{\"code\",\"status\",\"message\",\"details\"}}, and code equal to the HTTP status.";
    "error-info" Must [56 57] ("11.6", "") Look Interface HTTP
    "Errors of A2A have ErrorInfo with reason and domain"
    "Seven errors share the status 400; only the reason tells them apart."
    "Add google.rpc.ErrorInfo with @type, reason and the domain a2a-protocol.org to details.";
    "media-type" Should [46 48] ("11.1", "3.2.3") Look Interface HTTP
    "Bodies have the media type of the version"
    "Clients may refuse a type that they do not expect."
    "Send application/a2a+json (1.0), or application/json (0.3).";
    "json-accepted" Should [47] ("11.1", "3.2.3") Look Interface HTTP
    "Requests of type application/json are accepted"
    "Clients of 1.0.0 and of 0.3 send this type."
    "Accept application/json as well as application/a2a+json.";
    "query" Must [52] ("11.5", "") Look Interface HTTP
    "Query parameters have their types"
    "Filters and limits in the query would be ignored or refused."
    "Parse numbers, booleans, names of states and timestamps of the query.";
}

checks! { GRPC Grpc "grpc"
    "service" Must [60 61] ("10.1", "3.2.2") Look Interface GRPC
    "The service implements every rpc"
    "A missing rpc is UNIMPLEMENTED for every client of this binding."
    "Implement the whole service: lf.a2a.v1.A2AService (1.0), a2a.v1.A2AService (0.3).";
    "error-info" Must [64] ("10.6", "") Look Interface GRPC
    "Errors of A2A have ErrorInfo in the status details"
    "Six errors share FAILED_PRECONDITION; only the reason tells them apart."
    "Send google.rpc.Status with google.rpc.ErrorInfo in grpc-status-details-bin.";
    "codes" Must [65] ("5.4", "") Look Interface GRPC
    "Errors have the gRPC status of the error table"
    "Generic gRPC clients decide by the status whether to retry."
    "Use the status of the table: NOT_FOUND for an unknown task.";
}

checks! { VERSION Version "version"
    "unsupported" Must [71] ("3.6.2", "") Look Interface ANY
    "A version that is not supported gives VersionNotSupportedError"
    "A client of a later version would be answered in a form that it does not expect."
    "Answer A2A-Version: 99.0 with VersionNotSupportedError (-32009).";
    "absent" Must [70 72] ("3.6.2", "") Look Interface JSON
    "A request without A2A-Version is one of 0.3"
    "Clients of 0.3 send no version, and would get answers of 1.0."
    "Treat an absent version as 0.3: answer as 0.3, or with VersionNotSupportedError.";
    "patch" Must [73] ("3.6", "") Look Interface ANY
    "A patch number in the version is ignored"
    "Clients that send 1.0.1 would be refused by an agent that speaks 1.0."
    "Compare major and minor number only.";
    "query" Should [74] ("3.6.1", "") Look Interface HTTP
    "The version may be a query parameter"
    "Clients that cannot set headers, such as browsers with EventSource, cannot call the agent."
    "Accept ?A2A-Version=1.0 instead of the header.";
}
