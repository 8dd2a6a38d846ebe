package invoke

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/google/uuid"
)

// checkDoor tells what of a request is not as the Functions host sends it (host-contract A.1: a POST of
// JSON to the loopback address with the header X-Azure-Functions-InvocationId). It keeps out who reaches
// the port by accident or through somebody else's browser, which sends an Origin and cannot set that
// header. It does not keep out another process on the same machine, which could send all of it: see
// SECURITY.md.
func checkDoor(r *http.Request) error {
	switch mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); {
	case !isLoopback(r.Host):
		return errors.New("header Host: not the loopback address, so it is not from the Functions host")
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		return errors.New("header Origin: the Functions host sends none, browsers do")
	case uuid.Validate(r.Header.Get(invocationHeader)) != nil:
		return errors.New("header " + invocationHeader + ": missing or no GUID, so it is not from the Functions host")
	case !strings.EqualFold(strings.TrimSpace(mediaType), "application/json"):
		return errors.New("header Content-Type: want application/json, as the Functions host sends")
	}
	return nil
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
