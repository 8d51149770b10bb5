//! Checks of webhooks, and of the isolation of callers.

use super::checks;

checks! { PUSH Push "push"
    "create" Must [154] ("3.1.7", "7.5") Push Interface ANY
    "A created webhook is returned with its id"
    "Clients cannot read or delete it later."
    "Return the stored configuration, with an id made by the agent if there was none.";
    "get" Must [156 157] ("3.1.8", "7.6") Push Interface ANY
    "A webhook can be read, and an unknown one is not found"
    "Clients cannot check that they will be notified."
    "Return the stored configuration, and TaskNotFoundError for an unknown id.";
    "list" Must [158] ("3.1.9", "7.7") Push Interface ANY
    "The list has every webhook of the task"
    "Clients cannot find webhooks that they do not know."
    "Return every active configuration of the task.";
    "delete" Must [159 160] ("3.1.10", "7.8") Push Interface ANY
    "A deleted webhook is gone, and deleting it again succeeds"
    "Clients are notified for ever, or fail when they repeat a delete."
    "Remove the configuration, and answer a repeated delete with success.";
    "arrives" Must [161] ("4.3.3", "9.5") Push Interface ANY
    "A notification arrives at the webhook"
    "Clients that rely on webhooks never learn the result."
    "Post to the webhook whenever the task changes.";
    "shape" Must [162] ("4.3.3", "9.5") Push Interface ANY
    "Notifications have the form of the version"
    "Receivers cannot decode the notification."
    "Post a StreamResponse with exactly one member (1.0), or the task with kind (0.3).";
    "type" Should [163 165] ("4.3.3", "9.5") Push Interface ANY
    "Notifications have the media type of the version"
    "Receivers may refuse another type."
    "Send application/a2a+json (1.0), or application/json (0.3).";
    "credentials" Must [164] ("13.2", "9.5") Push Interface ANY
    "Notifications carry the credentials of the webhook"
    "Receivers cannot tell the agent from anybody else, and refuse the notification."
    "Send Authorization with the scheme and the credentials of the configuration.";
    "retried" Should [166] ("13.2", "") Push Interface ANY
    "A refused notification is sent again"
    "A receiver that restarts misses the result."
    "Retry failed deliveries, with growing pauses.";
    "private" Should [168] ("13.2", "9.1") Push Interface ANY
    "Webhooks at private addresses are refused"
    "Anybody can make the agent call machines of its own network (SSRF)."
    "Refuse loopback, private and link-local addresses, by name and by address.";
}

checks! { ISOLATION Isolation "isolation"
    "get" Must [86 87 88 89] ("13.1", "4.5") Key Interface ANY
    "The task of another caller is as unknown"
    "Callers can read, or at least find out, the tasks of others."
    "Look tasks up by caller and id, and answer as for an id that does not exist.";
    "cancel" Must [86 87 88 89] ("13.1", "4.5") Key Interface ANY
    "The task of another caller cannot be canceled"
    "Callers can destroy the work of others."
    "Look tasks up by caller and id, and answer as for an id that does not exist.";
    "subscribe" Must [86 87 88 89] ("13.1", "4.5") Key Interface ANY
    "The task of another caller cannot be followed"
    "Callers can read the results of others."
    "Look tasks up by caller and id, and answer as for an id that does not exist.";
    "send" Must [86 87 88 89] ("13.1", "4.5") Key Interface ANY
    "No message can be sent to the task of another caller"
    "Callers can take part in the conversations of others."
    "Look tasks up by caller and id, and answer as for an id that does not exist.";
    "push" Must [86 87 88 89] ("13.1", "4.5") Key Interface ANY
    "Webhooks of the task of another caller cannot be made, read or deleted"
    "Callers can redirect the results of others to themselves."
    "Look tasks up by caller and id, and answer as for an id that does not exist.";
    "list" Must [90] ("13.1", "") Key Interface ANY
    "The list has only tasks of the caller"
    "Callers can read the tasks of others."
    "Select tasks by their caller, also without a filter.";
}
