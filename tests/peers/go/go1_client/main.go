// Command go1_client checks an agent with the official Go SDK 2.x.
// Arguments: base URL, --binding NAME, --skip NAMES, --talk, --push, --text, --v03.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	legacy "github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"

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
	resolver := &agentcard.Resolver{Client: HTTPClient(), CardParser: agentcard.DefaultCardParser}
	if options.V03 {
		resolver.CardParser = a2av0.NewAgentCardParser()
	}
	card := Must(resolver.Resolve(ctx, options.URL))
	Expect(card.Name != "" && card.Version != "", "name or version missing: %+v", card)
	// The SDK takes the newest interface that it knows, so the others have to go.
	card.SupportedInterfaces = slices.DeleteFunc(card.SupportedInterfaces, func(i *a2a.AgentInterface) bool {
		return string(i.ProtocolBinding) != Bindings[options.Binding] ||
			strings.HasPrefix(string(i.ProtocolVersion), "0.") != options.V03
	})
	Expect(len(card.SupportedInterfaces) > 0, "no such interface on the card")
	client := Must(a2aclient.NewFromCard(ctx, card,
		a2aclient.WithJSONRPCTransport(HTTPClient()),
		a2aclient.WithRESTTransport(HTTPClient()),
		grpcv1.WithGRPCTransport(DialOptions()...),
		a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: HTTPClient()}),
		a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: HTTPClient()}),
		grpcv0.WithGRPCTransport(DialOptions()...),
	))
	return &agent{client, options}
}

func say(parts ...*a2a.Part) *a2a.SendMessageRequest {
	return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, parts...)}
}

func sayText(text string) *a2a.SendMessageRequest {
	return say(a2a.NewTextPart(text))
}

func replyTo(task *a2a.Task, text string) *a2a.SendMessageRequest {
	message := a2a.NewMessageForTask(a2a.MessageRoleUser, task, a2a.NewTextPart(text))
	return &a2a.SendMessageRequest{Message: message}
}

func (a *agent) task(ctx context.Context, request *a2a.SendMessageRequest) *a2a.Task {
	answer := Must(a.SendMessage(ctx, request))
	task, ok := answer.(*a2a.Task)
	Expect(ok, "expected a task, got %T", answer)
	return task
}

func (a *agent) hold(ctx context.Context) *a2a.Task {
	request := sayText("hold")
	request.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	task := a.task(ctx, request)
	expectState(task.Status, a2a.TaskStateSubmitted, a2a.TaskStateWorking)
	return task
}

func (a *agent) get(ctx context.Context, id a2a.TaskID) (*a2a.Task, error) {
	return a.GetTask(ctx, &a2a.GetTaskRequest{ID: id})
}

func (a *agent) cancel(ctx context.Context, id a2a.TaskID) (*a2a.Task, error) {
	return a.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id})
}

func expectState(status a2a.TaskStatus, states ...a2a.TaskState) {
	Expect(slices.Contains(states, status.State), "state is %s", status.State)
}

func textOf(parts a2a.ContentParts) string {
	text := ""
	for _, part := range parts {
		text += part.Text()
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
	if a.V03 && a.Binding == "grpc" {
		Skip("0.3 over gRPC cannot say 0")
	}
	task, none := a.task(ctx, sayText("hello")), 0
	again := Must(a.GetTask(ctx, &a2a.GetTaskRequest{ID: task.ID, HistoryLength: &none}))
	Expect(len(again.History) == 0, "history has %d messages", len(again.History))
}

func listTasks(ctx context.Context, a *agent) {
	if a.V03 {
		Skip("0.3 has no such operation")
	}
	task := a.task(ctx, sayText("hello"))
	// Without a page size, and in its own context, so that the tasks of other checks do not matter.
	page := Must(a.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: task.ContextID}))
	Expect(len(page.Tasks) == 1 && page.Tasks[0].ID == task.ID, "listed %d tasks", len(page.Tasks))
	expectState(page.Tasks[0].Status, a2a.TaskStateCompleted)
	Expect(len(page.Tasks[0].Artifacts) == 0, "artifacts listed without being asked for")
	Expect(page.TotalSize == 1, "total size is %d", page.TotalSize)
	page = Must(a.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: task.ContextID, PageSize: 100, IncludeArtifacts: true}))
	Expect(len(page.Tasks) == 1 && len(page.Tasks[0].Artifacts) == 1, "listed %d tasks", len(page.Tasks))
}

func notFound(ctx context.Context, a *agent) {
	_, err := a.get(ctx, a2a.NewTaskID())
	ExpectError(err, a2a.ErrTaskNotFound)
	_, err = a.cancel(ctx, a2a.NewTaskID())
	ExpectError(err, a2a.ErrTaskNotFound)
}

func refusedStream(ctx context.Context, a *agent) {
	_, err := Collect(a.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: a2a.NewTaskID()}))
	ExpectError(err, a2a.ErrTaskNotFound)
	task := a.task(ctx, sayText("hello"))
	_, err = Collect(a.SendStreamingMessage(ctx, replyTo(task, "more")))
	expectFinished(a, err)
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
func expectFinished(a *agent, err error) {
	if a.V03 {
		ExpectAnswer[*a2a.Error](err, notFinished...)
	} else {
		ExpectError(err, a2a.ErrUnsupportedOperation)
	}
}

func finished(ctx context.Context, a *agent) {
	task := a.task(ctx, sayText("hello"))
	_, err := a.SendMessage(ctx, replyTo(task, "more"))
	expectFinished(a, err)
}

func newFile() *a2a.Part {
	file := a2a.NewRawPart(AllBytes)
	file.Filename, file.MediaType = "all.bin", "application/octet-stream"
	return file
}

// expectFile expects the file that newFile makes.
func expectFile(a *agent, part *a2a.Part) {
	Expect(bytes.Equal(part.Raw(), AllBytes), "the bytes came back changed: %d of them", len(part.Raw()))
	Expect(part.MediaType == "application/octet-stream", "media type is %q", part.MediaType)
	Expect(part.Filename == "all.bin", "file name is %q", part.Filename)
}

func parts(ctx context.Context, a *agent) {
	data := map[string]any{"n": 1.0, "deep": map[string]any{"list": []any{1.0, "two", true, nil}}}
	url := a2a.NewFileURLPart("https://files.example/a.txt", "text/plain")
	request := say(a2a.NewTextPart("hello"), a2a.NewDataPart(data), newFile(), url)
	task := a.task(ctx, request)
	expectState(task.Status, a2a.TaskStateCompleted)
	kept := findMessage(task, request.Message.ID).Parts
	Expect(len(kept) == 4, "%d parts came back", len(kept))
	Expect(reflect.DeepEqual(kept[1].Data(), data), "data came back as %v", kept[1].Data())
	expectFile(a, kept[2])
	Expect(kept[3].URL() == url.URL() && kept[3].MediaType == "text/plain", "URL came back as %+v", kept[3])
}

func subscribe(ctx context.Context, a *agent) {
	task := a.hold(ctx)
	subscription := a.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: task.ID})
	events := CollectWhile(subscription, func() {
		expectState(Must(a.cancel(ctx, task.ID)).Status, a2a.TaskStateCanceled)
	})
	kinds := kindsOf(events)
	// The task comes first since 1.0; 0.3 leaves that open.
	Expect(a.V03 || len(kinds) > 0 && kinds[0] == "Task", "events are %q", kinds)
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
	answer := &a2a.SendMessageRequest{
		Message: a2a.NewMessageForTask(a2a.MessageRoleUser, last, a2a.NewTextPart("answer")),
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
	task := a.task(ctx, say(a2a.NewTextPart("file"), newFile()))
	expectState(task.Status, a2a.TaskStateCompleted)
	answer := task.Artifacts[0].Parts
	Expect(textOf(answer) == "256", "the agent read %s bytes", textOf(answer))
	Expect(len(answer) == 2, "%d parts", len(answer))
	expectFile(a, answer[1])
}

func newWebhook(url, id string, task a2a.TaskID) *a2a.PushConfig {
	auth := &a2a.PushAuthInfo{Scheme: "Bearer", Credentials: Credentials}
	return &a2a.PushConfig{ID: id, TaskID: task, URL: url, Token: Token, Auth: auth}
}

func webhooks(ctx context.Context, a *agent) {
	const url = "http://receiver.example/hook"
	id := a.task(ctx, sayText("hello")).ID
	same := func(found *a2a.PushConfig, name string) {
		Expect(found.TaskID == id && found.ID == name && found.URL == url, "got %+v", found)
	}
	ids := func() (all []string) {
		for _, config := range Must(a.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: id})) {
			all = append(all, config.ID)
		}
		return all
	}
	for _, name := range []string{"w-1", "w-2"} {
		same(Must(a.CreateTaskPushConfig(ctx, newWebhook(url, name, id))), name)
	}
	one := &a2a.GetTaskPushConfigRequest{TaskID: id, ID: "w-1"}
	same(Must(a.GetTaskPushConfig(ctx, one)), "w-1")
	ExpectIDs(ids(), "w-1", "w-2")
	err := a.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: id, ID: "w-1"})
	Expect(err == nil, "deleting failed: %v", err)
	ExpectIDs(ids(), "w-2")
	_, err = a.GetTaskPushConfig(ctx, one)
	ExpectError(err, a2a.ErrTaskNotFound)
	unknown := a2a.NewTaskID()
	_, err = a.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: unknown, ID: "w-1"})
	ExpectError(err, a2a.ErrTaskNotFound)
	err = a.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: unknown, ID: "w-1"})
	ExpectError(err, a2a.ErrTaskNotFound)
}

// readNotification reads a body with the types of the SDK.
func readNotification(a *agent, body []byte) a2a.Event {
	if a.V03 {
		return Must(a2av0.ToV1Event(Must(legacy.UnmarshalEventJSON(body))))
	}
	var event a2a.StreamResponse
	err := json.Unmarshal(body, &event)
	Expect(err == nil, "cannot read %s: %v", body, err)
	return event.Event
}

func notified(ctx context.Context, a *agent) {
	webhook := OpenWebhook()
	defer webhook.Close()
	request := sayText("hello")
	request.Config = &a2a.SendMessageConfig{PushConfig: newWebhook(webhook.URL, "w-1", "")}
	task := a.task(ctx, request)
	text, state := "", a2a.TaskStateUnspecified
	for state != a2a.TaskStateCompleted {
		event := readNotification(a, webhook.Next(ctx))
		Expect(event.TaskInfo().TaskID == task.ID, "notified of %+v", event)
		switch event := event.(type) {
		case *a2a.Task:
			state, text = event.Status.State, ""
			for _, artifact := range event.Artifacts {
				text += textOf(artifact.Parts)
			}
		case *a2a.TaskStatusUpdateEvent:
			state = event.Status.State
		case *a2a.TaskArtifactUpdateEvent:
			text += textOf(event.Artifact.Parts)
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
	}, true)
}
