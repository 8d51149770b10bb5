// Command go03_server is an echo agent on the official Go SDK 0.3.x, which has JSON-RPC and gRPC. Argument: port.
package main

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2agrpc"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/a2aproject/a2a-go/a2asrv/push"
	"google.golang.org/grpc"

	"nuncio.test/peers/common"
)

type echo struct{}

func (echo) Execute(ctx context.Context, call *a2asrv.RequestContext, queue eventqueue.Queue) error {
	status := func(state a2a.TaskState, final bool, message *a2a.Message) error {
		event := a2a.NewStatusUpdateEvent(call, state, message)
		event.Final = final
		return queue.Write(ctx, event)
	}
	text := ""
	for _, part := range call.Message.Parts {
		if part, ok := part.(a2a.TextPart); ok {
			text += part.Text
		}
	}
	first := call.StoredTask == nil
	if first && strings.HasPrefix(text, "message") {
		return queue.Write(ctx, a2a.NewMessage(a2a.MessageRoleAgent, a2a.TextPart{Text: text}))
	}
	if first {
		if err := queue.Write(ctx, a2a.NewSubmittedTask(call, call.Message)); err != nil {
			return err
		}
	}
	if err := status(a2a.TaskStateWorking, false, nil); err != nil {
		return err
	}
	if first && text == "ask" {
		question := a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.TextPart{Text: "What shall I echo?"})
		return status(a2a.TaskStateInputRequired, true, question)
	}
	if first && strings.HasPrefix(text, "hold") {
		<-ctx.Done() // Cancel writes the rest
		return nil
	}
	if err := queue.Write(ctx, a2a.NewArtifactEvent(call, answer(text, call.Message.Parts)...)); err != nil {
		return err
	}
	return status(a2a.TaskStateCompleted, true, nil)
}

func (echo) Cancel(ctx context.Context, call *a2asrv.RequestContext, queue eventqueue.Queue) error {
	event := a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, nil)
	event.Final = true
	return queue.Write(ctx, event)
}

// answer returns the text, or for "file" the size of the file in bytes and the file itself.
func answer(text string, parts a2a.ContentParts) []a2a.Part {
	for _, part := range parts {
		file, ok := part.(a2a.FilePart)
		if !ok || text != "file" {
			continue
		}
		size := "no base64"
		if content, ok := file.File.(a2a.FileBytes); ok {
			if raw, err := base64.StdEncoding.DecodeString(content.Bytes); err == nil {
				size = strconv.Itoa(len(raw))
			}
		}
		return []a2a.Part{a2a.TextPart{Text: size}, file}
	}
	return []a2a.Part{a2a.TextPart{Text: text}}
}

func main() {
	port := os.Args[1]
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	httpListener, grpcListener := common.Listen(port), common.Listen("0")
	url := "http://127.0.0.1:" + port + "/"
	card := &a2a.AgentCard{
		Name:               "Echo (Go SDK 0.3.x)",
		Description:        "Echoes what it is sent.",
		Version:            "1.0.0",
		ProtocolVersion:    string(a2a.Version),
		URL:                url,
		PreferredTransport: a2a.TransportProtocolJSONRPC,
		AdditionalInterfaces: []a2a.AgentInterface{
			{Transport: a2a.TransportProtocolJSONRPC, URL: url},
			{Transport: a2a.TransportProtocolGRPC, URL: grpcListener.Addr().String()},
		},
		Capabilities:       a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes:  []string{"text/plain", "application/octet-stream"},
		DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{
			ID: "echo", Name: "Echo", Description: "Echoes text.", Tags: []string{"echo"},
		}},
	}
	handler := a2asrv.NewHandler(echo{},
		a2asrv.WithPushNotifications(push.NewInMemoryStore(), push.NewHTTPPushSender(nil)),
	)
	services := grpc.NewServer()
	a2agrpc.NewHandler(handler).RegisterWith(services)
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	mux.Handle("/", a2asrv.NewJSONRPCHandler(handler))
	common.Serve(port, httpListener, mux, grpcListener, services)
}
