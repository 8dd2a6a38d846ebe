package ingress

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
	case header(r, "Origin") != "" || header(r, "Sec-Fetch-Site") != "":
		return errors.New("header Origin: the Functions host sends none, browsers do")
	case uuid.Validate(header(r, invocationHeader)) != nil:
		return errors.New("header X-Azure-Functions-InvocationId: missing or no GUID, so it is not from the Functions host")
	case !isJSON(header(r, "Content-Type")):
		return errors.New("header Content-Type: want application/json, as the Functions host sends")
	}
	return nil
}

// header is Header.Get for a name in the letter case that net/http knows headers by.
func header(r *http.Request, name string) string {
	if values := r.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
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
