// Package azurite runs Azurite, the Azure Storage emulator, as a child process: the
// storage of tests, the demo and local development. It needs Node.js. The Makefile installs Azurite in this package's
// folder, at the version that package-lock.json pins, so the package is for programs that run in a checkout.
package azurite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// The account of every Azurite. Name and key are public
// (https://learn.microsoft.com/azure/storage/common/storage-use-azurite).
const (
	// AccountName is the account's name, and the first segment of every URL's path.
	AccountName = "devstoreaccount1"
	// AccountKey is the account's shared key, base64-encoded.
	AccountKey = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

const (
	// startLimit is far longer than a start takes (about a second), because several test packages start
	// Azurite at once on machines with two cores.
	startLimit = 60 * time.Second
	// pollInterval is the time between two looks at the output of a starting server.
	pollInterval = 25 * time.Millisecond
	// stopGrace is how long Azurite may take to write its data to disk before it is killed.
	stopGrace = 10 * time.Second
	// services is the number of services that Azurite starts: blobs, queues and tables.
	services = 3
)

// Options configures Azurite. The zero value keeps nothing on disk.
type Options struct {
	// Port is the TCP port of the queue service on 127.0.0.1, BlobPort and TablePort are those of the others; 0 means
	// a free one. A restart keeps all ports.
	Port, BlobPort, TablePort int
	// Data is the folder to keep the data in; Azurite creates it. If empty, all data is in memory and lost on Stop.
	// After a restart, Azurite 3.36 does not expire the messages from the folder.
	Data string
	// AnyVersion makes Azurite accept API versions that it does not know, such as that of a newer SDK.
	AnyVersion bool
}

// StandardPorts returns options with the ports of every Azurite, which UseDevelopmentStorage=true means.
func StandardPorts() Options { return Options{BlobPort: 10000, Port: 10001, TablePort: 10002} }

// PortInUse returns the first of the ports that is not free, and the error of listening there; 0 if all are free.
func (o Options) PortInUse(ctx context.Context) (int, error) {
	for _, port := range []int{o.BlobPort, o.Port, o.TablePort} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return port, err
		}
		_ = listener.Close()
	}
	return 0, nil
}

// Server is a running Azurite. It is not safe for concurrent use.
type Server struct {
	// ConnectionString reaches the account on this server.
	ConnectionString string
	// Endpoint is the URL of the account's queue service, without a slash at the end.
	Endpoint string
	// TableEndpoint is that of the table service.
	TableEndpoint string

	options Options
	child   *child // nil while stopped
}

// Start starts Azurite on a free port and returns once it accepts requests. The context limits only the start:
// the server runs until Stop, or until this process ends.
func Start(ctx context.Context, options Options) (*Server, error) {
	s := &Server{options: options}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Restart stops the server if it runs, and starts it again on the same ports and with the same data folder. The
// context limits only the start.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.start(ctx)
}

// Stop asks Azurite to save its data and end, and waits until it has. After ten seconds it kills Azurite and
// returns an error, because data may be lost. Stopping a stopped server does nothing.
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

// Ended returns a channel that is closed when the running server has ended.
func (s *Server) Ended() <-chan struct{} { return s.child.ended }

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
		_ = c.stop(stopGrace) // the first error matters more
		return fmt.Errorf("start azurite: %w; it printed:\n%s", err, c.printed.String())
	}
	s.child = c
	return nil
}

// command returns the child's command line. It runs Azurite's script itself, because the one in .bin is a
// shell wrapper on Windows.
func (s *Server) command() (*exec.Cmd, error) {
	dir, err := folder()
	if err != nil {
		return nil, err
	}
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(filepath.Join(modules, ".installed")); err != nil {
		return nil, errors.New("it is not installed: run `make npm`")
	}
	args := []string{
		filepath.Join(modules, "azurite", "dist", "src", "azurite.js"), "--silent", "--disableTelemetry",
		"--queueHost", "127.0.0.1", "--queuePort", strconv.Itoa(s.options.Port),
		"--blobHost", "127.0.0.1", "--blobPort", strconv.Itoa(s.options.BlobPort),
		"--tableHost", "127.0.0.1", "--tablePort", strconv.Itoa(s.options.TablePort),
	}
	if s.options.AnyVersion {
		args = append(args, "--skipApiVersionCheck")
	}
	if s.options.Data != "" {
		args = append(args, "--location", s.options.Data)
	} else {
		args = append(args, "--inMemoryPersistence")
	}
	return exec.Command("node", args...), nil //nolint:noctx // it outlives the context
}

// folder returns this package's source folder, which is below the working directory or below a parent of it.
func folder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		found := filepath.Join(dir, "handler", "tools", "azurite")
		if _, err := os.Stat(filepath.Join(found, "package-lock.json")); err == nil {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("its package-lock.json is not found: run this in a checkout of the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// listening matches what Azurite prints when a service accepts requests.
var listening = regexp.MustCompile(
	`(Blob|Queue|Table) service is successfully listening at (https?)(://127\.0\.0\.1:(\d+))\n`)

// await waits until the child accepts requests, and fills in its addresses.
func (s *Server) await(ctx context.Context, c *child) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		found := listening.FindAllStringSubmatch(c.printed.String(), -1)
		if len(found) == services {
			return s.setAddresses(found)
		}
		select {
		case <-c.ended:
			return fmt.Errorf("it ended: %s", c.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("it does not listen: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// setAddresses reads where the services listen.
func (s *Server) setAddresses(found [][]string) error {
	const account = "DefaultEndpointsProtocol=%s;AccountName=%s;AccountKey=%s;"
	s.ConnectionString = fmt.Sprintf(account, found[0][2], AccountName, AccountKey)
	for _, service := range found {
		port, err := strconv.Atoi(service[4])
		if err != nil {
			return err
		}
		endpoint := service[2] + service[3] + "/" + AccountName
		s.ConnectionString += service[1] + "Endpoint=" + endpoint + ";"
		switch service[1] {
		case "Blob":
			s.options.BlobPort = port
		case "Queue":
			s.options.Port, s.Endpoint = port, endpoint
		case "Table":
			s.options.TablePort, s.TableEndpoint = port, endpoint
		}
	}
	return nil
}
