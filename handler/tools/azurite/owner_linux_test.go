package azurite

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// ownerVariable makes the test binary a process that starts an Azurite and never stops it.
const ownerVariable = "ASYNC_CALLER_TEST_AZURITE_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	server, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, server.options.Port)
	<-context.Background().Done() // until killed
}

func TestServerEndsWithItsOwner(t *testing.T) {
	owner := exec.CommandContext(t.Context(), os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strings.TrimSpace(port))
	if !listens(t, addr) {
		t.Fatalf("nothing listens on %s", addr)
	}
	if err := owner.Process.Kill(); err != nil { // SIGKILL: it cannot stop anything
		t.Fatal(err)
	}
	_ = owner.Wait()
	eventually(t, "Azurite to end", func() bool { return !listens(t, addr) })
}

func listens(t *testing.T, addr string) bool {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
