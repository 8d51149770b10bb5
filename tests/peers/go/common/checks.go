// Package common holds the parts of the Go peers that depend on no line of the SDK.
package common

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// checkTimeout bounds one check: an agent that never answers is a failure, not a hang.
const checkTimeout = 20 * time.Second

// subscribedAfter is the time after which a stream without events counts as open: a 0.3 server may send none
// before something happens. It is no multiple of half a second, when the Python 0.3 server looks up from its
// queue and may lose an event.
const subscribedAfter = 2750 * time.Millisecond

// Bindings maps the names of the bindings on the command line to those on cards.
var Bindings = map[string]string{"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "grpc": "GRPC"}

// AllBytes is the content of the file that the checks send: each byte once, so that it is not UTF-8.
var AllBytes = func() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}()

// LongText is what the agent of the check named text says, in pieces.
var LongText = func() string {
	text := ""
	for n := range 400 {
		text += fmt.Sprintf("token %d ", n)
	}
	return text
}()

// Options are the arguments of a client.
type Options struct {
	URL     string
	Binding string
	V03     bool
}

// Check is one check of an agent.
type Check[A any] struct {
	Name string
	Run  func(context.Context, A)
}

// Suite is the list of checks of a client. Those in Talk run with --talk only, for agents that ask back and answer
// with a bare message; those in Push run with --push only, for agents with webhooks. Those in Text run with --text
// alone, for an agent that says a long text in pieces.
type Suite[A any] struct {
	Connect func(context.Context, Options) A
	Checks  []Check[A]
	Talk    []Check[A]
	Push    []Check[A]
	Text    []Check[A]
}

type failure string
type omission string

// Expect fails the check with what was found, unless the condition holds.
func Expect(condition bool, format string, args ...any) {
	if !condition {
		panic(failure(fmt.Sprintf(format, args...)))
	}
}

// Skip ends a check that does not apply.
func Skip(reason string) {
	panic(omission(reason))
}

// Must returns the value, or fails the check with the error.
func Must[T any](value T, err error) T {
	Expect(err == nil, "%T: %v", err, err)
	return value
}

// ExpectError fails the check unless the error is the wanted one, as the SDK tells them apart.
func ExpectError(err, wanted error) {
	Expect(err != nil, "no error; expected %q", wanted)
	Expect(errors.Is(err, wanted), "expected %q, got %q", wanted, err)
}

// ExpectAnswer fails the check unless the error is an answer of the agent of type E, which the SDK has read, and none
// of those that would mislead.
func ExpectAnswer[E error](err error, misleading ...error) {
	Expect(err != nil, "no error")
	var answer E
	Expect(errors.As(err, &answer), "expected an error of the agent, got %T: %v", err, err)
	for _, other := range misleading {
		Expect(!errors.Is(err, other), "expected another error of the agent than %q: %q", other, err)
	}
}

// ExpectIDs fails the check unless these are the ids, in any order.
func ExpectIDs(found []string, wanted ...string) {
	slices.Sort(found)
	Expect(slices.Equal(found, wanted), "listed %q, expected %q", found, wanted)
}

// Collect returns all events of a stream, up to its end or its first error.
func Collect[E any](stream iter.Seq2[E, error]) ([]E, error) {
	var events []E
	for event, err := range stream {
		if err != nil {
			return events, err
		}
		events = append(events, event)
	}
	return events, nil
}

// CollectWhile reads a stream to its end; once it is open, action runs.
func CollectWhile[E any](stream iter.Seq2[E, error], action func()) []E {
	type result struct {
		events []E
		err    error
	}
	first, done := make(chan struct{}, 1), make(chan result, 1)
	go func() {
		var all result
		for event, err := range stream {
			if err != nil {
				all.err = err
				break
			}
			all.events = append(all.events, event)
			select {
			case first <- struct{}{}:
			default:
			}
		}
		done <- all
	}()
	select {
	case <-first:
	case <-time.After(subscribedAfter):
	}
	action()
	all := <-done
	return Must(all.events, all.err)
}

// HTTPClient connects directly: proxy variables of the machine must not come between two local processes.
func HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: nil}}
}

// DialOptions are those of a local gRPC connection without TLS.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy()}
}

// Run runs the suite, prints a line per check and exits with 1 if one failed.
func Run[A any](suite Suite[A], withV03 bool) {
	options, groups, skipped := arguments(withV03)
	var agent A
	failed := false
	try := func(name string, run func(context.Context)) bool {
		if slices.Contains(skipped, name) {
			fmt.Printf("skip %s: as asked\n", name)
			return true
		}
		line, good := attempt(run)
		fmt.Printf(line+"\n", name)
		failed = failed || !good
		return good
	}
	if try("card", func(ctx context.Context) { agent = suite.Connect(ctx, options) }) {
		checks := slices.Clone(suite.Checks)
		if groups.talk {
			checks = append(checks, suite.Talk...)
		}
		if groups.push {
			checks = append(checks, suite.Push...)
		}
		if groups.text {
			checks = suite.Text
		}
		for _, check := range checks {
			try(check.Name, func(ctx context.Context) { check.Run(ctx, agent) })
		}
	}
	if failed {
		os.Exit(1)
	}
}

// groups are the checks that run besides the usual ones, or instead of them.
type groups struct {
	talk, push, text bool
}

func arguments(withV03 bool) (options Options, groups groups, skipped []string) {
	var skip string
	flag.StringVar(&options.Binding, "binding", "jsonrpc", "binding of the agent: jsonrpc, rest or grpc")
	flag.StringVar(&skip, "skip", "", "names of checks to leave out, comma separated")
	flag.BoolVar(&groups.talk, "talk", false, "check the texts ask, message and file as well")
	flag.BoolVar(&groups.push, "push", false, "check webhooks as well")
	flag.BoolVar(&groups.text, "text", false, "check a text in pieces, and nothing else")
	if withV03 {
		flag.BoolVar(&options.V03, "v03", false, "use the card's 0.3 interface, through the compatibility layer of the SDK")
	}
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, "missing argument: the base URL of the agent comes first")
		os.Exit(2)
	}
	options.URL = strings.TrimRight(os.Args[1], "/")
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil || Bindings[options.Binding] == "" {
		fmt.Fprintf(os.Stderr, "unknown binding %q: use jsonrpc, rest or grpc\n", options.Binding)
		os.Exit(2)
	}
	return options, groups, strings.Split(skip, ",")
}

// attempt runs one check and returns its line, with a place for its name.
func attempt(run func(context.Context)) (line string, good bool) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		run(ctx)
	}()
	var outcome any
	select {
	case outcome = <-done:
	case <-time.After(checkTimeout + time.Second):
		outcome = failure(fmt.Sprintf("no result after %s", checkTimeout))
	}
	switch why := outcome.(type) {
	case nil:
		return "ok %s", true
	case omission:
		return "skip %s: " + escape(string(why)), true
	default:
		return "FAIL %s: " + escape(fmt.Sprint(why)), false
	}
}

// escape keeps a message on one line and out of the verbs of a format.
func escape(message string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(message), " "), "%", "%%")
}

// Listen opens a port of this machine for a server of ours; 0 lets the system choose one.
func Listen(port string) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot listen on port %s: %v\n", port, err)
		os.Exit(1)
	}
	return listener
}

// Serve serves HTTP on one listener and gRPC on the other, and reports on stdout that the port is open.
func Serve(port string, httpListener net.Listener, handler http.Handler, grpcListener net.Listener, services *grpc.Server) {
	go func() { fail(services.Serve(grpcListener)) }()
	fmt.Printf("listening on %s\n", port)
	fail(http.Serve(httpListener, handler))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "the server ended:", err)
	os.Exit(1)
}
