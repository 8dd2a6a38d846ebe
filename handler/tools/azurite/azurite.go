// Package azurite runs the queue service of Azurite, the Azure Storage emulator, as a child process: the
// storage that tests, the demo and local development work against. It needs Node.js; [Install] fetches
// Azurite itself, at the version that package-lock.json beside this file pins.
//
// It is for programs that run from a checkout of the repository: Azurite lives in the source folder.
package azurite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The account that every Azurite has. Name and key are public, printed in Microsoft's documentation
// (https://learn.microsoft.com/azure/storage/common/storage-use-azurite).
const (
	// AccountName is the account's name, and the first segment of every URL's path.
	AccountName = "devstoreaccount1"
	// AccountKey is the account's shared key, base64-encoded.
	AccountKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const (
	host = "127.0.0.1"

	// startLimit is far above what a start takes (about a second), because several test packages start
	// theirs at once, on machines with two cores.
	startLimit = 60 * time.Second
	// pollInterval is how often a starting server is asked whether it answers.
	pollInterval = 25 * time.Millisecond
	// stopGrace is how long Azurite may take to write its data to disk before it is killed.
	stopGrace = 10 * time.Second
	// portTries is how many free ports are tried. Between finding one and Azurite listening on it
	// anybody else can take it.
	portTries = 5
)

// listening is what Azurite prints once it listens. An answer on the port is not enough to know: it may
// come from somebody else's server, while ours is about to find the port taken.
const listening = "successfully listens on"

// Options say how to run Azurite. The zero value is a server on a free port that keeps nothing.
type Options struct {
	// Data is the folder to keep the queues in; Azurite makes it when it is missing. Empty means that all
	// is kept in memory and lost on Stop. After a restart Azurite 3.36 no longer expires the messages
	// that it finds in the folder.
	Data string
	// Port to listen on, on 127.0.0.1; 0 means any free one.
	Port int
	// CertFile and KeyFile name PEM files. When both are set, Azurite serves https and takes bearer
	// tokens as well as the account key. It checks a token's dates, issuer and audience but not its
	// signature.
	CertFile, KeyFile string
}

// Server is a running Azurite. Its methods must not be called at the same time.
type Server struct {
	// ConnectionString reaches the well-known account on this server, for queues only.
	ConnectionString string
	// Endpoint is the URL of the account's queue service, without a slash at the end.
	Endpoint string
	// Port is the TCP port on 127.0.0.1. A restart keeps it.
	Port int

	options Options
	client  *http.Client
	child   *child // nil while stopped
}

// Start starts Azurite and returns once it answers requests. The context bounds the start alone: the
// server runs until Stop, or until this process ends. [Install] must have been called before, in this
// process or another one.
func Start(ctx context.Context, options Options) (*Server, error) {
	fixed := options.Port != 0
	for try := 1; ; try++ {
		if !fixed {
			port, err := freePort(ctx)
			if err != nil {
				return nil, fmt.Errorf("start azurite: %w", err)
			}
			options.Port = port
		}
		s := newServer(options)
		err := s.start(ctx)
		if err == nil {
			return s, nil
		}
		if fixed || !errors.Is(err, errPortTaken) || try == portTries {
			return nil, err
		}
	}
}

func newServer(options Options) *Server {
	scheme := "http"
	if options.CertFile != "" && options.KeyFile != "" {
		scheme = "https"
	}
	endpoint := fmt.Sprintf("%s://%s/%s", scheme, net.JoinHostPort(host, strconv.Itoa(options.Port)), AccountName)
	return &Server{
		ConnectionString: fmt.Sprintf("DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;QueueEndpoint=%s;",
			scheme, AccountName, AccountKey, endpoint),
		Endpoint: endpoint,
		Port:     options.Port,
		options:  options,
		client:   probeClient(),
	}
}

// Restart starts the server again, on the same port and with the same data folder, after stopping it if
// it runs. The context bounds the start alone.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.start(ctx)
}

// Stop asks Azurite to save its data and end, and waits until it has. If it does not end within ten
// seconds it is killed; the error then says so, for data may be lost. Stopping a stopped server does
// nothing.
func (s *Server) Stop() error {
	if s.child == nil {
		return nil
	}
	c := s.child
	s.child = nil
	if err := c.stop(stopGrace); err != nil {
		return fmt.Errorf("stop azurite: %w", err)
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	cmd, err := s.command()
	if err != nil {
		return fmt.Errorf("start azurite: %w", err)
	}
	c, err := startChild(cmd)
	if err != nil {
		return fmt.Errorf("start azurite: %w", err)
	}
	if err := s.await(ctx, c); err != nil {
		_ = c.stop(stopGrace) // what went wrong before matters more
		return fmt.Errorf("start azurite on port %d: %w; it printed:\n%s", s.Port, err, c.output())
	}
	s.child = c
	return nil
}

// command is the child's command line. It is Azurite's script and not the one in .bin, which is a shell
// wrapper on Windows.
func (s *Server) command() (*exec.Cmd, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	script := filepath.Join(dir, modules, "azurite", "dist", "src", "queue", "main.js")
	if _, err := os.Stat(script); err != nil {
		return nil, fmt.Errorf("it is not installed: run `npm ci` in %s", dir)
	}
	node, err := lookPath("node")
	if err != nil {
		return nil, err
	}
	args := []string{
		script,
		"--queueHost", host, "--queuePort", strconv.Itoa(s.Port),
		"--silent", "--disableTelemetry",
		// A newer SDK asks for an API version that this Azurite has not heard of.
		"--skipApiVersionCheck",
	}
	if s.options.Data != "" {
		args = append(args, "--location", s.options.Data)
	} else {
		args = append(args, "--inMemoryPersistence")
	}
	if s.options.CertFile != "" && s.options.KeyFile != "" {
		args = append(args, "--oauth", "basic", "--cert", s.options.CertFile, "--key", s.options.KeyFile)
	}
	return exec.Command(node, args...), nil //nolint:noctx // our own script; it outlives the context
}

var errPortTaken = errors.New("port is taken")

// await waits until the child answers requests.
func (s *Server) await(ctx context.Context, c *child) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.ended:
			if strings.Contains(c.output(), "EADDRINUSE") {
				return errPortTaken
			}
			return fmt.Errorf("it ended: %w", c.exitError())
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", context.Cause(ctx))
		case <-tick.C:
			if strings.Contains(c.output(), listening) && s.answers(ctx) {
				return nil
			}
		}
	}
}

// answers reports whether the server answers a request at all; this one it refuses, for it is not signed.
func (s *Server) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"?comp=list", nil)
	if err != nil {
		return false
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil
}

// freePort finds a TCP port that nobody listens on at this moment.
func freePort(ctx context.Context) (int, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
