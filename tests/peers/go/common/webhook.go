package common

import (
	"context"
	"io"
	"net/http"
)

// Token and Credentials are given to the webhooks of the checks. Some SDKs send one of them, some both.
const (
	Token       = "t0ken"
	Credentials = "s3cret"
)

// Webhook is a receiver of notifications.
type Webhook struct {
	URL    string
	posts  chan []byte
	server *http.Server
}

// OpenWebhook starts a receiver. It takes posts that show the token or the credentials.
func OpenWebhook() *Webhook {
	listener := Listen("0")
	webhook := &Webhook{
		URL:   "http://" + listener.Addr().String() + "/hook",
		posts: make(chan []byte, 64),
	}
	webhook.server = &http.Server{Handler: http.HandlerFunc(webhook.take)}
	go func() { _ = webhook.server.Serve(listener) }()
	return webhook
}

// Close ends the receiver.
func (w *Webhook) Close() {
	_ = w.server.Close()
}

// Next returns the body of the next notification.
func (w *Webhook) Next(ctx context.Context) []byte {
	select {
	case body := <-w.posts:
		return body
	case <-ctx.Done():
		panic(failure("no notification: " + ctx.Err().Error()))
	}
}

func (w *Webhook) take(answer http.ResponseWriter, request *http.Request) {
	// 1.0 renamed the header of the token; senders that know both versions use both names.
	expected := map[string]string{
		"A2A-Notification-Token":   Token,
		"X-A2A-Notification-Token": Token,
		"Authorization":            "Bearer " + Credentials,
	}
	shown := false
	for name, value := range expected {
		switch request.Header.Get(name) {
		case "":
		case value:
			shown = true
		default:
			answer.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	body, err := io.ReadAll(request.Body)
	if !shown || err != nil {
		answer.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.posts <- body
	answer.WriteHeader(http.StatusNoContent)
}
