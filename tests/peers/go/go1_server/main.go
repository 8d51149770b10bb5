// Command go1_server is an echo agent on the official Go SDK 2.x, in all bindings.
// Arguments: port, --v03 (answer 0.3 as well).
package main

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"
	"google.golang.org/grpc"

	"nuncio.test/peers/common"
)

type echo struct{}

func (echo) Execute(ctx context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		emit := func(event a2a.Event) bool { return yield(event, nil) }
		status := func(state a2a.TaskState, message *a2a.Message) bool {
			return emit(a2a.NewStatusUpdateEvent(call, state, message))
		}
		text := ""
		for _, part := range call.Message.Parts {
			text += part.Text()
		}
		first := call.StoredTask == nil
		if first && strings.HasPrefix(text, "message") {
			emit(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(text)))
			return
		}
		if first && !emit(a2a.NewSubmittedTask(call, call.Message)) {
			return
		}
		if !status(a2a.TaskStateWorking, nil) {
			return
		}
		if first && text == "ask" {
			question := a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.NewTextPart("What shall I echo?"))
			status(a2a.TaskStateInputRequired, question)
			return
		}
		if first && strings.HasPrefix(text, "hold") {
			<-ctx.Done() // Cancel writes the rest
			return
		}
		if !emit(a2a.NewArtifactEvent(call, answer(text, call.Message.Parts)...)) {
			return
		}
		status(a2a.TaskStateCompleted, nil)
	}
}

func (echo) Cancel(_ context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, nil), nil)
	}
}

// answer returns the text, or for "file" the size of the file in bytes and the file itself.
func answer(text string, parts a2a.ContentParts) []*a2a.Part {
	found := slices.IndexFunc(parts, func(part *a2a.Part) bool { return part.Raw() != nil })
	if text != "file" || found < 0 {
		return []*a2a.Part{a2a.NewTextPart(text)}
	}
	return []*a2a.Part{a2a.NewTextPart(strconv.Itoa(len(parts[found].Raw()))), parts[found]}
}

// byVersion serves both versions at one URL, by the header of 1.0 clients.
func byVersion(current, legacy http.Handler) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if strings.HasPrefix(request.Header.Get("A2A-Version"), "1.") {
			current.ServeHTTP(answer, request)
		} else {
			legacy.ServeHTTP(answer, request)
		}
	})
}

func main() {
	port, v03 := os.Args[1], slices.Contains(os.Args[2:], "--v03")
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	httpListener, grpcListener := common.Listen(port), common.Listen("0")
	versions := []a2a.ProtocolVersion{a2a.Version}
	if v03 {
		versions = append(versions, a2av0.Version)
	}
	url := "http://127.0.0.1:" + port
	card := &a2a.AgentCard{
		Name:               "Echo (Go SDK 2.x)",
		Description:        "Echoes what it is sent.",
		Version:            "1.0.0",
		Capabilities:       a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes:  []string{"text/plain", "application/octet-stream"},
		DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{
			ID: "echo", Name: "Echo", Description: "Echoes text.", Tags: []string{"echo"},
		}},
	}
	for _, version := range versions {
		for _, way := range []a2a.AgentInterface{
			{ProtocolBinding: a2a.TransportProtocolJSONRPC, URL: url + "/"},
			{ProtocolBinding: a2a.TransportProtocolHTTPJSON, URL: url + "/rest"},
			{ProtocolBinding: a2a.TransportProtocolGRPC, URL: grpcListener.Addr().String()},
		} {
			way.ProtocolVersion = version
			card.SupportedInterfaces = append(card.SupportedInterfaces, &way)
		}
	}
	handler := a2asrv.NewHandler(echo{},
		// The store of the SDK lists tasks only for a caller with a name.
		a2asrv.WithTaskStore(taskstore.NewInMemory(&taskstore.InMemoryStoreConfig{
			Authenticator: func(context.Context) (string, error) { return "caller", nil },
		})),
		a2asrv.WithPushNotifications(push.NewInMemoryStore(),
			push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true})),
	)
	services := grpc.NewServer()
	grpcv1.NewHandler(handler).RegisterWith(services)
	jsonrpc, rest := a2asrv.NewJSONRPCHandler(handler), a2asrv.NewRESTHandler(handler)
	cards := a2asrv.NewStaticAgentCardHandler(card)
	if v03 {
		grpcv0.NewHandler(handler).RegisterWith(services)
		jsonrpc = byVersion(jsonrpc, a2av0.NewJSONRPCHandler(handler))
		rest = byVersion(rest, a2av0.NewRESTHandler(handler))
		cards = a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card))
	}
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, cards)
	mux.Handle("/rest/", http.StripPrefix("/rest", rest))
	mux.Handle("/", jsonrpc)
	common.Serve(port, httpListener, mux, grpcListener, services)
}
