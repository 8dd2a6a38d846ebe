package invoke

import (
	"errors"
	"mime"
	"net"
	"net/http"
	"net/netip"

	"github.com/google/uuid"
)

// checkDoor tells what of a request is not as the Functions host sends it (host-contract A.1: a POST of
// JSON to the loopback address with the header X-Azure-Functions-InvocationId). It keeps out who reaches
// the port by accident or through somebody else's browser, which sends an Origin and cannot set that
// header. It does not keep out another process on the same machine, which could send all of it: see
// SECURITY.md.
func checkDoor(r *http.Request) error {
	switch {
	case !isLoopback(r.Host):
		return errors.New("header Host: not the loopback address, so it is not from the Functions host")
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		return errors.New("header Origin: the Functions host sends none, browsers do")
	case uuid.Validate(r.Header.Get(invocationHeader)) != nil:
		return errors.New("header X-Azure-Functions-InvocationId: missing or no GUID, so it is not from the Functions host")
	case !isJSON(r.Header.Get("Content-Type")):
		return errors.New("header Content-Type: want application/json, as the Functions host sends")
	}
	return nil
}

func isJSON(contentType string) bool {
	if contentType == "application/json; charset=utf-8" { // just as the host writes it: nothing to parse
		return true
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	return mediaType == "application/json"
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
