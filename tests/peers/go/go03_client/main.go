// Command go03_client checks an agent with the official Go SDK 0.3.x. The SDK has JSON-RPC and gRPC.
// Arguments: base URL, --binding NAME, --skip NAMES, --talk, --push, --text.
package main

import (
	"context"
	"encoding/base64"
	"reflect"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2aclient/agentcard"

	. "nuncio.test/peers/common"
)

type agent struct {
	*a2aclient.Client
	Options
}

// notFinished are errors that do not fit a message to a finished task: those of a transport, and those of another
// operation.
var notFinished = []error{a2a.ErrParseError, a2a.ErrServerError, a2a.ErrInternalError, a2a.ErrTaskNotCancelable}

func connect(ctx context.Context, options Options) *agent {
	card := Must(agentcard.NewResolver(HTTPClient()).Resolve(ctx, options.URL))
	Expect(card.Name != "" && card.Version != "", "name or version missing: %+v", card)
	Expect(strings.HasPrefix(card.ProtocolVersion, "0.3"), "protocol version is %q", card.ProtocolVersion)
	transport := a2aclient.WithJSONRPCTransport(HTTPClient())
	if options.Binding == "grpc" {
		transport = a2aclient.WithGRPCTransport(DialOptions()...)
	}
	// With this transport alone, the SDK takes its interface of the card.
	return &agent{Must(a2aclient.NewFromCard(ctx, card, a2aclient.WithDefaultsDisabled(), transport)), options}
}

func say(parts ...a2a.Part) *a2a.MessageSendParams {
	return &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser, parts...)}
}

func newText(text string) a2a.Part {
	return a2a.TextPart{Text: text}
}

func sayText(text string) *a2a.MessageSendParams {
	return say(newText(text))
}

func replyTo(task *a2a.Task, text string) *a2a.MessageSendParams {
	message := a2a.NewMessageForTask(a2a.MessageRoleUser, task, newText(text))
	return &a2a.MessageSendParams{Message: message}
}

func (a *agent) task(ctx context.Context, request *a2a.MessageSendParams) *a2a.Task {
	answer := Must(a.SendMessage(ctx, request))
	task, ok := answer.(*a2a.Task)
	Expect(ok, "expected a task, got %T", answer)
	return task
}

func (a *agent) hold(ctx context.Context) *a2a.Task {
	request := sayText("hold")
	blocking := false
	request.Config = &a2a.MessageSendConfig{Blocking: &blocking}
	task := a.task(ctx, request)
	expectState(task.Status, a2a.TaskStateSubmitted, a2a.TaskStateWorking)
	return task
}

func (a *agent) get(ctx context.Context, id a2a.TaskID) (*a2a.Task, error) {
	return a.GetTask(ctx, &a2a.TaskQueryParams{ID: id})
}

func (a *agent) cancel(ctx context.Context, id a2a.TaskID) (*a2a.Task, error) {
	return a.CancelTask(ctx, &a2a.TaskIDParams{ID: id})
}

func expectState(status a2a.TaskStatus, states ...a2a.TaskState) {
	Expect(slices.Contains(states, status.State), "state is %s", status.State)
}

func textOf(parts a2a.ContentParts) string {
	text := ""
	for _, part := range parts {
		if part, ok := part.(a2a.TextPart); ok {
			text += part.Text
		}
	}
	return text
}

func kindsOf(events []a2a.Event) []string {
	var kinds []string
	for _, event := range events {
		kinds = append(kinds, strings.TrimPrefix(reflect.TypeOf(event).String(), "*a2a."))
	}
	return kinds
}

func findMessage(task *a2a.Task, id string) *a2a.Message {
	found := slices.IndexFunc(task.History, func(m *a2a.Message) bool { return m.ID == id })
	Expect(found >= 0, "message %s is not in the history of %d messages", id, len(task.History))
	return task.History[found]
}

func send(ctx context.Context, a *agent) {
	request := sayText("hello")
	task := a.task(ctx, request)
	expectState(task.Status, a2a.TaskStateCompleted)
	Expect(task.ID != "" && task.ContextID != "", "an id is missing: %+v", task)
	Expect(len(task.Artifacts) == 1, "%d artifacts", len(task.Artifacts))
	Expect(textOf(task.Artifacts[0].Parts) == "hello", "artifact is %q", textOf(task.Artifacts[0].Parts))
	kept := findMessage(task, request.Message.ID)
	Expect(kept.Role == a2a.MessageRoleUser && textOf(kept.Parts) == "hello", "history has %+v", kept)
}

func stream(ctx context.Context, a *agent) {
	events := Must(Collect(a.SendStreamingMessage(ctx, sayText("hello"))))
	kinds := kindsOf(events)
	Expect(len(kinds) > 2 && kinds[0] == "Task" && kinds[len(kinds)-1] == "TaskStatusUpdateEvent", "events are %q", kinds)
	var states []a2a.TaskState
	text := ""
	for _, event := range events {
		Expect(event.TaskInfo().TaskID == events[0].TaskInfo().TaskID, "events are of several tasks: %+v", event)
		switch event := event.(type) {
		case *a2a.TaskStatusUpdateEvent:
			states = append(states, event.Status.State)
		case *a2a.TaskArtifactUpdateEvent:
			text += textOf(event.Artifact.Parts)
		}
	}
	Expect(slices.Contains(states, a2a.TaskStateWorking), "states are %q", states)
	Expect(states[len(states)-1] == a2a.TaskStateCompleted, "states are %q", states)
	Expect(text == "hello", "artifacts are %q", text)
}

func get(ctx context.Context, a *agent) {
	task := a.task(ctx, sayText("hello"))
	again := Must(a.get(ctx, task.ID))
	Expect(again.ID == task.ID && again.ContextID == task.ContextID, "got %+v", again)
	expectState(again.Status, a2a.TaskStateCompleted)
	Expect(len(again.Artifacts) == 1, "%d artifacts", len(again.Artifacts))
}

func historyZero(ctx context.Context, a *agent) {
	if a.Binding == "grpc" {
		Skip("0.3 over gRPC cannot say 0")
	}
	task, none := a.task(ctx, sayText("hello")), 0
	again := Must(a.GetTask(ctx, &a2a.TaskQueryParams{ID: task.ID, HistoryLength: &none}))
	Expect(len(again.History) == 0, "history has %d messages", len(again.History))
}

// listTasks does not apply: tasks/list of this SDK is an addition of its own.
func listTasks(context.Context, *agent) {
	Skip("0.3 has no such operation")
}

func notFound(ctx context.Context, a *agent) {
	_, err := a.get(ctx, a2a.NewTaskID())
	ExpectError(err, a2a.ErrTaskNotFound)
	_, err = a.cancel(ctx, a2a.NewTaskID())
	ExpectError(err, a2a.ErrTaskNotFound)
}

func refusedStream(ctx context.Context, a *agent) {
	_, err := Collect(a.ResubscribeToTask(ctx, &a2a.TaskIDParams{ID: a2a.NewTaskID()}))
	ExpectError(err, a2a.ErrTaskNotFound)
	task := a.task(ctx, sayText("hello"))
	_, err = Collect(a.SendStreamingMessage(ctx, replyTo(task, "more")))
	expectFinished(err)
}

func cancel(ctx context.Context, a *agent) {
	task := a.hold(ctx)
	expectState(Must(a.cancel(ctx, task.ID)).Status, a2a.TaskStateCanceled)
	expectState(Must(a.get(ctx, task.ID)).Status, a2a.TaskStateCanceled)
}

func cancelAgain(ctx context.Context, a *agent) {
	task := a.hold(ctx)
	Must(a.cancel(ctx, task.ID))
	_, err := a.cancel(ctx, task.ID)
	ExpectError(err, a2a.ErrTaskNotCancelable)
}

// expectFinished expects the refusal of a message to a task that has ended. 0.3 leaves open which error it is.
func expectFinished(err error) {
	ExpectAnswer[*a2a.Error](err, notFinished...)
}

func finished(ctx context.Context, a *agent) {
	task := a.task(ctx, sayText("hello"))
	_, err := a.SendMessage(ctx, replyTo(task, "more"))
	expectFinished(err)
}

func newFile() a2a.FilePart {
	return a2a.FilePart{File: a2a.FileBytes{
		FileMeta: a2a.FileMeta{Name: "all.bin", MimeType: "application/octet-stream"},
		Bytes:    base64.StdEncoding.EncodeToString(AllBytes),
	}}
}

func parts(ctx context.Context, a *agent) {
	data := map[string]any{"n": 1.0, "deep": map[string]any{"list": []any{1.0, "two", true, nil}}}
	url := a2a.FilePart{File: a2a.FileURI{
		FileMeta: a2a.FileMeta{Name: "a.txt", MimeType: "text/plain"},
		URI:      "https://files.example/a.txt",
	}}
	request := say(newText("hello"), a2a.DataPart{Data: data}, newFile(), url)
	task := a.task(ctx, request)
	expectState(task.Status, a2a.TaskStateCompleted)
	kept := findMessage(task, request.Message.ID).Parts
	Expect(len(kept) == 4, "%d parts came back", len(kept))
	for i, sent := range request.Message.Parts {
		Expect(reflect.DeepEqual(withoutMeta(kept[i]), sent), "expected %+v, got %+v", sent, kept[i])
	}
}

// withoutMeta returns the part without metadata, which a decoder may leave empty or absent.
func withoutMeta(part a2a.Part) a2a.Part {
	switch part := part.(type) {
	case a2a.TextPart:
		part.Metadata = nil
		return part
	case a2a.DataPart:
		part.Metadata = nil
		return part
	case a2a.FilePart:
		part.Metadata = nil
		return part
	default:
		return part
	}
}

func subscribe(ctx context.Context, a *agent) {
	task := a.hold(ctx)
	subscription := a.ResubscribeToTask(ctx, &a2a.TaskIDParams{ID: task.ID})
	events := CollectWhile(subscription, func() {
		expectState(Must(a.cancel(ctx, task.ID)).Status, a2a.TaskStateCanceled)
	})
	kinds := kindsOf(events)
	Expect(len(events) > 0, "no events")
	last, ok := events[len(events)-1].(*a2a.TaskStatusUpdateEvent)
	Expect(ok, "events are %q", kinds)
	expectState(last.Status, a2a.TaskStateCanceled)
}

func ask(ctx context.Context, a *agent) {
	task := a.task(ctx, sayText("ask"))
	expectState(task.Status, a2a.TaskStateInputRequired)
	Expect(task.Status.Message != nil && textOf(task.Status.Message.Parts) != "", "no question: %+v", task.Status)
	done := a.task(ctx, replyTo(task, "answer"))
	Expect(done.ID == task.ID, "another task: %s", done.ID)
	expectState(done.Status, a2a.TaskStateCompleted)
	Expect(textOf(done.Artifacts[0].Parts) == "answer", "artifact is %q", textOf(done.Artifacts[0].Parts))
}

func askByStream(ctx context.Context, a *agent) {
	asked := Must(Collect(a.SendStreamingMessage(ctx, sayText("ask"))))
	last, ok := asked[len(asked)-1].(*a2a.TaskStatusUpdateEvent)
	Expect(ok && last.Status.State == a2a.TaskStateInputRequired, "events are %q", kindsOf(asked))
	answer := &a2a.MessageSendParams{
		Message: a2a.NewMessageForTask(a2a.MessageRoleUser, last, newText("answer")),
	}
	answered := Must(Collect(a.SendStreamingMessage(ctx, answer)))
	last, ok = answered[len(answered)-1].(*a2a.TaskStatusUpdateEvent)
	Expect(ok && last.Status.State == a2a.TaskStateCompleted, "events are %q", kindsOf(answered))
}

func message(ctx context.Context, a *agent) {
	plain := Must(a.SendMessage(ctx, sayText("message hello")))
	events := Must(Collect(a.SendStreamingMessage(ctx, sayText("message hello"))))
	Expect(len(events) == 1, "events are %q", kindsOf(events))
	for _, event := range []a2a.Event{plain, events[0]} {
		reply, ok := event.(*a2a.Message)
		Expect(ok, "expected a message, got %T", event)
		Expect(reply.Role == a2a.MessageRoleAgent && textOf(reply.Parts) == "message hello", "got %+v", reply)
	}
}

func file(ctx context.Context, a *agent) {
	task := a.task(ctx, say(newText("file"), newFile()))
	expectState(task.Status, a2a.TaskStateCompleted)
	answer := task.Artifacts[0].Parts
	Expect(textOf(answer) == "256", "the agent read %s bytes", textOf(answer))
	Expect(len(answer) == 2, "%d parts", len(answer))
	Expect(reflect.DeepEqual(withoutMeta(answer[1]), a2a.Part(newFile())), "the file came back as %+v", answer[1])
}

func newWebhook(url, id string) a2a.PushConfig {
	auth := &a2a.PushAuthInfo{Schemes: []string{"Bearer"}, Credentials: Credentials}
	return a2a.PushConfig{ID: id, URL: url, Token: Token, Auth: auth}
}

func webhooks(ctx context.Context, a *agent) {
	const url = "http://receiver.example/hook"
	id := a.task(ctx, sayText("hello")).ID
	same := func(found *a2a.TaskPushConfig, name string) {
		Expect(found.TaskID == id && found.Config.ID == name && found.Config.URL == url, "got %+v", found)
	}
	ids := func() (all []string) {
		for _, config := range Must(a.ListTaskPushConfig(ctx, &a2a.ListTaskPushConfigParams{TaskID: id})) {
			all = append(all, config.Config.ID)
		}
		return all
	}
	for _, name := range []string{"w-1", "w-2"} {
		config := &a2a.TaskPushConfig{TaskID: id, Config: newWebhook(url, name)}
		same(Must(a.SetTaskPushConfig(ctx, config)), name)
	}
	one := &a2a.GetTaskPushConfigParams{TaskID: id, ConfigID: "w-1"}
	same(Must(a.GetTaskPushConfig(ctx, one)), "w-1")
	ExpectIDs(ids(), "w-1", "w-2")
	err := a.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigParams{TaskID: id, ConfigID: "w-1"})
	Expect(err == nil, "deleting failed: %v", err)
	ExpectIDs(ids(), "w-2")
	_, err = a.GetTaskPushConfig(ctx, one)
	ExpectError(err, a2a.ErrTaskNotFound)
	unknown := a2a.NewTaskID()
	_, err = a.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigParams{TaskID: unknown, ConfigID: "w-1"})
	ExpectError(err, a2a.ErrTaskNotFound)
	err = a.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigParams{TaskID: unknown, ConfigID: "w-1"})
	ExpectError(err, a2a.ErrTaskNotFound)
}

func notified(ctx context.Context, a *agent) {
	webhook := OpenWebhook()
	defer webhook.Close()
	request, config := sayText("hello"), newWebhook(webhook.URL, "w-1")
	request.Config = &a2a.MessageSendConfig{PushConfig: &config}
	task := a.task(ctx, request)
	text, state := "", a2a.TaskStateUnspecified
	for state != a2a.TaskStateCompleted {
		body := webhook.Next(ctx)
		told, ok := Must(a2a.UnmarshalEventJSON(body)).(*a2a.Task)
		Expect(ok && told.ID == task.ID, "notified of %s", body)
		state, text = told.Status.State, ""
		for _, artifact := range told.Artifacts {
			text += textOf(artifact.Parts)
		}
	}
	Expect(text == "hello", "notified of artifacts %q", text)
}

func text(ctx context.Context, a *agent) {
	events := Must(Collect(a.SendStreamingMessage(ctx, sayText("hello"))))
	pieces, said := 0, ""
	for _, event := range events {
		if event, ok := event.(*a2a.TaskArtifactUpdateEvent); ok {
			pieces++
			said += textOf(event.Artifact.Parts)
		}
	}
	Expect(pieces > 1, "%d pieces", pieces)
	Expect(said == LongText, "the pieces are %q", said)
	task := Must(a.get(ctx, events[0].TaskInfo().TaskID))
	Expect(len(task.Artifacts) == 1 && len(task.Artifacts[0].Parts) == 1, "artifacts are %+v", task.Artifacts)
	Expect(textOf(task.Artifacts[0].Parts) == LongText, "the text is %q", textOf(task.Artifacts[0].Parts))
}

func main() {
	Run(Suite[*agent]{
		Connect: connect,
		Checks: []Check[*agent]{
			{"send", send},
			{"stream", stream},
			{"get", get},
			{"history_zero", historyZero},
			{"list_tasks", listTasks},
			{"not_found", notFound},
			{"refused_stream", refusedStream},
			{"cancel", cancel},
			{"cancel_again", cancelAgain},
			{"finished", finished},
			{"parts", parts},
			{"subscribe", subscribe},
		},
		Talk: []Check[*agent]{{"ask", ask}, {"ask_by_stream", askByStream}, {"message", message}, {"file", file}},
		Push: []Check[*agent]{{"webhooks", webhooks}, {"notified", notified}},
		Text: []Check[*agent]{{"text", text}},
	}, false)
}
