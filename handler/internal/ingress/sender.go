package ingress

import (
	"errors"
	"mime"
	"net"
	"net/http"
	"net/netip"

	"github.com/google/uuid"
)

const invocationHeader = "X-Azure-Functions-InvocationId"

// checkSender returns an error if a request differs from those of the Functions host (host-contract A.1: a POST of
// JSON to the loopback address with the header X-Azure-Functions-InvocationId). It keeps out requests that reach
// the port by accident or through a web page: a browser sends an Origin and cannot set that header. It does not
// keep out another process on the same machine, which can send all of it: see SECURITY.md.
func checkSender(r *http.Request) error {
	switch {
	case !isLoopback(r.Host):
		return errors.New("header Host: not the loopback address, so the request is not from the Functions host")
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		return errors.New("header Origin: browsers send it, the Functions host does not")
	case uuid.Validate(r.Header.Get(invocationHeader)) != nil:
		return errors.New("header " + invocationHeader + ": missing or not a GUID, so the request is not from the Functions host")
	}
	if mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); mediaType != "application/json" {
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
