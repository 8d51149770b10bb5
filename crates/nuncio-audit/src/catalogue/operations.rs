//! Checks of operations that need no message: errors, lists, undeclared operations, extensions, authentication.

use super::checks;

checks! { ERRORS Errors "errors"
    "get" Must [112] ("3.1.3", "7.3") Look Interface ANY
    "GetTask of an unknown task gives TaskNotFoundError"
    "Clients would wait for a task that does not exist."
    "Answer with TaskNotFoundError: -32001, HTTP 404, NOT_FOUND.";
    "cancel" Must [130] ("3.1.5", "7.4") Look Interface ANY
    "CancelTask of an unknown task gives TaskNotFoundError"
    "Clients believe that something was canceled."
    "Answer with TaskNotFoundError: -32001, HTTP 404, NOT_FOUND.";
    "subscribe" Must [145] ("3.1.6", "7.9") Look Interface ANY
    "SubscribeToTask of an unknown task gives TaskNotFoundError"
    "Clients would hold a stream open on which nothing ever comes."
    "Answer with TaskNotFoundError, as the answer or as the first frame of the stream.";
    "push" Must [155] ("3.1.7", "7.5") Look Interface ANY
    "A webhook for an unknown task gives TaskNotFoundError"
    "Clients would wait for notifications of a task that does not exist."
    "Answer with TaskNotFoundError: -32001, HTTP 404, NOT_FOUND.";
    "data" Must [40] ("9.5", "") Look Interface RPC
    "The data of errors is a list of objects with @type"
    "Clients decode details by their type, and fail on another shape."
    "Write error.data as a list of objects, each with @type.";
    "info" Should [41] ("9.5", "") Look Interface RPC
    "Errors of A2A have ErrorInfo with reason and domain"
    "Clients over several bindings decide by the reason."
    "Add google.rpc.ErrorInfo with reason and the domain a2a-protocol.org to error.data.";
    "same" Must [7] ("5.1", "3.4.1") Look Agent ANY
    "The same failure has the same meaning over every interface"
    "A client that changes the binding would handle the same failure differently."
    "Map each error of the agent to the codes of every binding by the error table.";
}

checks! { LIST List "list"
    "shape" Must [117] ("3.1.4", "") Look Interface ANY
    "ListTasks returns tasks, nextPageToken, pageSize and totalSize"
    "Clients that page through tasks need all four, also where they are empty or zero."
    "Write all four members, nextPageToken as \"\" on the last page.";
    "size" Must [121] ("3.1.4", "") Look Interface ANY
    "A page size outside of 1 to 100 is refused"
    "A client that asks for too much would get fewer tasks than it believes, or overload the agent."
    "Answer pageSize -1 and 101 with invalid params.";
    "token" Must [122] ("3.1.4", "") Look Interface ANY
    "An invalid page token is refused"
    "A client with a stale token would read the first page again and again."
    "Answer a token that the agent has not issued with invalid params.";
    "status" Must [125] ("3.1.4", "") Look Interface JSON
    "An unknown state as filter is refused"
    "A client with a misspelt state would see all tasks, or none, without a hint."
    "Answer an unknown name of a state with invalid params.";
    "artifacts" Must [126] ("3.1.4", "") Look Interface JSON
    "Artifacts are absent unless they are asked for"
    "Lists become as large as all results of all tasks."
    "Leave the member artifacts out of listed tasks unless includeArtifacts is true.";
    "order" Must [118] ("3.1.4", "") Look Interface ANY
    "Tasks are ordered by the time of their status, newest first"
    "Clients that look for recent changes on the first page miss them."
    "Sort by status.timestamp, newest first.";
    "walk" Must [119 120 127] ("3.1.4", "") Look Interface ANY
    "Pages have no repeats and no gaps, and the last has an empty token"
    "Clients process tasks twice, or never, or page for ever."
    "Make tokens cursors of the last task of a page; return \"\" on the last.";
}

checks! { UNDECLARED Undeclared "undeclared"
    "stream" Must [132] ("3.3.4", "") Look Interface ANY
    "Subscribe without the capability gives UnsupportedOperationError"
    "Clients that ignore the card cannot tell a missing capability from a broken agent."
    "Answer streaming operations with UnsupportedOperationError (-32004) if streaming is not declared.";
    "push" Must [153] ("3.3.4", "7.5") Look Interface ANY
    "Webhooks without the capability give PushNotificationNotSupportedError"
    "Clients would wait for notifications that never come."
    "Answer operations on webhooks with PushNotificationNotSupportedError (-32003).";
    "card" Must [192] ("3.3.4", "7.10") Look Interface ANY
    "An extended card that is not declared gives UnsupportedOperationError"
    "Clients cannot tell a missing capability from a broken agent."
    "Answer GetExtendedAgentCard with UnsupportedOperationError (-32004); in 0.3 also -32007 or -32601.";
}

checks! { EXTENSIONS Extensions "extensions"
    "required" Must [77] ("3.3.4", "") Look Interface ANY
    "A call without a required extension gives ExtensionSupportRequiredError"
    "Calls that do not follow the extension would be misunderstood."
    "Answer calls that do not list the extension in A2A-Extensions with ExtensionSupportRequiredError (-32008).";
    "unknown" Should [78] ("4.6.3", "5.5.2.1") Look Interface ANY
    "Unknown extensions of a request are ignored"
    "Clients that offer extensions to every agent would be refused."
    "Ignore URIs in A2A-Extensions that the agent does not know.";
    "echoed" Should [80 81] ("4.6", "5.5.2.1") Look Interface ANY
    "Activated extensions are named in the response"
    "Clients cannot know whether the extension was applied."
    "Name the extensions that were activated in A2A-Extensions of the response; in 0.3 in X-A2A-Extensions.";
}

checks! { AUTH Auth "auth"
    "missing" Must [84] ("7.4", "4.4") Look Interface ANY
    "Calls without credentials are refused if the card requires them"
    "Anybody can call an agent whose card says that it is protected."
    "Check credentials before anything else, on every interface; answer 401, or UNAUTHENTICATED.";
    "invalid" Must [84] ("7.4", "4.4") Look Interface ANY
    "Calls with invalid credentials are refused if the card requires them"
    "Anybody can call the agent with any token."
    "Verify credentials, and answer 401, or UNAUTHENTICATED.";
    "challenge" Should [85] ("7.4", "4.4") Look Interface ANY
    "Refused credentials are answered with a challenge"
    "Clients do not learn which credentials are needed."
    "Send WWW-Authenticate with the status 401; over gRPC the status UNAUTHENTICATED.";
    "card" Must [191] ("13.3", "7.10") Look Interface ANY
    "The extended card needs credentials"
    "What is meant for known callers can be read by anybody."
    "Answer GetExtendedAgentCard without credentials with 401, or UNAUTHENTICATED.";
    "list" May [90] ("13.1", "") Look Interface ANY
    "The list of tasks is open to anybody"
    "Anybody can read the tasks of all callers of an agent without authentication."
    "Require credentials, or show a caller only its own tasks.";
}
