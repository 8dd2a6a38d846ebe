// Floor is the least that a custom handler can do: it takes an invocation, posts the same bytes to TARGET,
// and tells the Functions host that all is well. It reads no message, decides nothing and writes nothing to
// storage, so what it costs is what HTTP costs. `make bench` measures the product beside it; it is no part
// of the product.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	portName   = "FUNCTIONS_CUSTOMHANDLER_PORT"
	targetName = "TARGET"
	// maxInvocationBytes is the handler's own limit.
	maxInvocationBytes = 2 << 20
	readHeaderTimeout  = 30 * time.Second
	// maxIdlePerHost keeps the connections of 256 calls at a time, the most that is measured.
	maxIdlePerHost = 512
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

// run answers until ctx ends, and then ends at once.
func run(ctx context.Context, getenv func(string) string) error {
	port, target := getenv(portName), getenv(targetName)
	if port == "" || target == "" {
		return fmt.Errorf("%s and %s must be set: `make bench` does", portName, targetName)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return fmt.Errorf("listening for invocations: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxIdlePerHost, DisableCompression: true}}
	server := &http.Server{Handler: forward(client, target), ReadHeaderTimeout: readHeaderTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering invocations: %w", err)
	}
	return nil
}

// forward answers GET at once, as the handler does, and hands on the body of a POST. Whatever status the
// target answers is a success: the product settles every one of them.
func forward(client *http.Client, target string) http.HandlerFunc {
	answer := []byte(`{"Logs":[]}`)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := post(r.Context(), client, target, http.MaxBytesReader(w, r.Body, maxInvocationBytes)); err != nil {
				http.Error(w, "the call failed", http.StatusInternalServerError)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // a host that hung up has nobody to tell
	}
}

func post(ctx context.Context, client *http.Client, target string, from io.Reader) error {
	body, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
