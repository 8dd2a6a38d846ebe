package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fakeModeVariable turns the test's executable into a custom handler.
const fakeModeVariable = "ASYNC_CALLER_TEST_FAKE_HANDLER"

// runFakeHandler is the handler process, which obeys the content of messages.
func runFakeHandler(port string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	interrupted := make(chan struct{})
	go func() {
		<-signals
		fmt.Fprintln(os.Stdout, "fake: interrupted")
		close(interrupted)
	}()
	fmt.Fprintf(os.Stdout, "fake: pid=%d.\n", os.Getpid())
	server := &http.Server{
		Addr: "127.0.0.1:" + port, Handler: http.HandlerFunc(fakeHandler), ReadHeaderTimeout: time.Minute,
	}
	idle := make(chan struct{})
	go func() {
		<-interrupted
		_ = server.Shutdown(context.Background())
		close(idle)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-idle
	return 0
}

// fakeHandler obeys commands: `name`, `name:argument` or `first/later`, where first is for the first delivery of a
// message and later for the others. The command of a timer is the name of its function.
func fakeHandler(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		http.NotFound(w, r) // any answer means ready
		return
	}
	command, count := fakeCommand(r)
	if first, later, ok := strings.Cut(command, "/"); ok {
		command = first
		if count != "1" {
			command = later
		}
	}
	name, argument, _ := strings.Cut(command, ":")
	fmt.Fprintf(os.Stdout, "fake: %s count=%s\n", command, count)
	switch name {
	case "fail":
		w.WriteHeader(http.StatusInternalServerError)
		return
	case "empty":
		return
	case "block":
		select {}
	case "gate":
		waitAtGate(argument)
	case "exit":
		code, _ := strconv.Atoi(argument)
		fmt.Fprintln(os.Stderr, "fake: last words")
		os.Exit(code)
	case "env":
		dir, _ := os.Getwd()
		fmt.Fprintf(os.Stdout, "fake: dir=%s %s=%s\n", dir, argument, os.Getenv(argument))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"Logs":["fake: logged"]}`))
}

// waitAtGate connects to a gate of the test and waits until it opens.
func waitAtGate(address string) {
	conn, err := net.Dial("tcp", address) //nolint:noctx // it ends with the process
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, conn)
}

func fakeCommand(r *http.Request) (command, dequeueCount string) {
	var body struct {
		Data struct {
			Msg   string
			Timer json.RawMessage
		}
		Metadata struct{ DequeueCount string }
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return "fail", ""
	}
	if body.Data.Timer != nil {
		return strings.TrimPrefix(r.URL.Path, "/"), "timer"
	}
	content, err := base64.StdEncoding.DecodeString(body.Data.Msg)
	if err != nil {
		return "fail", ""
	}
	return string(content), body.Metadata.DequeueCount
}
