//! Checks of the agent card and of the reachability of its interfaces.

use super::checks;

checks! { CARD Card "card"
    "found" Must [1 2] ("8.2", "5.3") Look Agent ANY
    "The agent card is at its well-known address"
    "Clients read the card first: without it they know no interface, version or skill of the agent."
    "Serve the card as a JSON object, with status 200, at /.well-known/agent-card.json below the agent's URL.";
    "required" Must [174] ("4.4.1", "5.5") Look Agent ANY
    "The card has every required member"
    "SDKs refuse a card without a required member, and the agent cannot be called at all."
    "Add the missing members, with their types; empty strings and lists count as missing.";
    "interfaces" Must [175] ("4.4.6", "5.5.5") Look Agent ANY
    "Every interface has a URL, a binding and a version"
    "A client selects an interface by its binding and version; an incomplete one is never selected, or fails."
    "Give each entry of supportedInterfaces url, protocolBinding and protocolVersion; in 0.3, url and transport.";
    "preference" Should [176] ("8.3.1", "5.6.2") Look Agent ANY
    "The preferred interface comes first and answers"
    "Clients use the first interface that they support; each failed attempt costs a timeout."
    "List the interface that works best first, and list none twice.";
    "transport" Must [177] ("", "5.6.1") Look Agent ANY
    "preferredTransport is true of url"
    "Clients of 0.3 call the main URL with the preferred transport; if it is another, each call fails."
    "Set preferredTransport to the transport that answers at url.";
    "conflict" Must [178] ("", "5.6.4") Look Agent ANY
    "The transports of one URL do not contradict each other"
    "A client that reads the main entry and one that reads the list would call the same URL differently."
    "List the main URL in additionalInterfaces with its preferred transport.";
    "modes" Should [174] ("4.4.1", "5.5") Look Agent ANY
    "Input and output modes are media types"
    "Clients compare modes with the media types of parts; a word such as text matches nothing."
    "Write modes as type/subtype, such as text/plain or application/json.";
    "cache" Should [182] ("8.6.1", "") Look Agent ANY
    "The card has Cache-Control with max-age, and an ETag"
    "Without them clients fetch the card for each call, or keep it for an arbitrary time."
    "Send Cache-Control: max-age=300 and an ETag made of the content with the card.";
    "etag" Should [183] ("8.6", "") Look Agent ANY
    "A card that has not changed is answered with 304"
    "Clients that revalidate transfer the whole card again."
    "Answer 304 without a body if If-None-Match has the current ETag.";
    "signature" Must [185 186] ("8.4", "") Look Agent ANY
    "Signatures of the card are complete and hold"
    "Clients that verify cards refuse one whose signature does not hold, and cannot find the key without kid."
    "Sign the canonical JSON (RFC 8785) of the card without signatures, with alg, typ and kid in the protected header.";
    "signature-type" Should [187] ("8.4.2", "") Look Agent ANY
    "The type of signatures is JOSE"
    "Some verifiers refuse other types."
    "Set typ to JOSE in the protected header.";
    "legacy" May [] ("8.2", "5.3") Look Agent ANY
    "The address of cards before 0.3"
    "Clients older than 0.3 look for the card at /.well-known/agent.json."
    "Nothing has to be changed; serve the card there, too, if such clients exist.";
    "https" Must [3] ("7.1", "3.1") Look Agent ANY
    "Interfaces use TLS"
    "Messages and credentials are readable by every machine on the way."
    "Serve the agent by https, and list https URLs on the card.";
    "schemes" Must [84] ("4.5", "5.5.3") Look Agent ANY
    "Security schemes are complete, and requirements name schemes"
    "Clients cannot know which credentials to send."
    "Give each scheme its kind and required members; name only schemes of securitySchemes in requirements.";
    "skills" Must [174] ("4.4.5", "5.5.4") Look Agent ANY
    "Skills have id, name, description and tags, and unique ids"
    "Directories and routers select agents by their skills."
    "Add the missing members, and give each skill its own id.";
    "text" May [] ("13.4", "4.1") Look Agent ANY
    "Text of the card that instructs models"
    "Orchestrators put descriptions into the prompts of models; instructions in them may take over the model."
    "Describe the agent and its skills; do not address the reader.";
    "union" May [] ("8.5", "5.5") Look Agent ANY
    "One card with the members of both versions"
    "One reading: a card has the members of one version. Another: unknown members are ignored, so one document serves both."
    "Nothing has to be changed; strict clients may need a card per version.";
}

checks! { REACH Reach "reach"
    "answers" Must [6] ("5.1", "3.4.1") Look Interface ANY
    "The interface answers in its version and binding"
    "Clients that select this interface cannot call the agent."
    "Serve the interface at its URL, or remove it from the card.";
    "tenant" Must [44] ("8.3.2", "") Look Interface ANY
    "The interface answers calls with its tenant"
    "Clients send the tenant of the interface in every call, and would be refused."
    "Accept the tenant of the card in params, in the path, and in the gRPC request.";
    "tls" Should [4] ("13.4", "3.1") Look Interface ANY
    "TLS 1.3 is offered, and TLS 1.1 refused"
    "Old versions of TLS are broken; new clients may refuse to connect."
    "Enable TLS 1.3 and 1.2 only.";
    "reflection" May [] ("10", "3.2.2") Look Interface GRPC
    "gRPC server reflection"
    "Tools can list the services of a server with reflection."
    "Nothing has to be changed.";
}
