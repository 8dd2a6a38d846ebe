package outbound

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

// The headers of Standard Webhooks, as its specification spells them.
const (
	webhookID        = "webhook-id"
	webhookTimestamp = "webhook-timestamp"
	webhookSignature = "webhook-signature"
)

// sign adds the signatures of a request whose headers and body are complete, if its target gets any. The envelope's own
// headers of this kind are dropped, so that no sender can give a target other ones. It returns the canonical names of
// what it has added.
func sign(request *http.Request, e *envelope.Envelope, profile targets.Profile) (added []string) {
	dropSignatures(request, profile)
	keys := profile.SigningKeysOf(&e.Call)
	if len(keys) == 0 {
		return nil
	}
	addSignatures(request, e, keys)
	for _, name := range []string{webhookID, webhookTimestamp, webhookSignature} {
		added = append(added, http.CanonicalHeaderKey(name))
	}
	return added
}

// signBehind signs a request behind a redirect again, because it can have lost its body, if it has kept what the
// profile of the call's target has added. From another target it comes without signatures.
func (c *Client) signBehind(request *http.Request, e *envelope.Envelope, added []string) {
	profile := c.profiles.For(request.URL)
	hadSignatures := dropSignatures(request, profile)
	if hadSignatures && slices.Contains(added, http.CanonicalHeaderKey(webhookSignature)) {
		addSignatures(request, e, profile.Sign)
	}
}

// dropSignatures drops all headers of signatures if only those of the profile may reach the target. It reports whether
// there were any.
func dropSignatures(request *http.Request, profile targets.Profile) bool {
	before := len(request.Header)
	if len(profile.Sign) > 0 {
		maps.DeleteFunc(request.Header, func(name string, _ []string) bool { return targets.IsWebhookHeader(name) })
	}
	return len(request.Header) < before
}

func addSignatures(request *http.Request, e *envelope.Envelope, keys targets.SigningKeys) {
	id, body := webhookIDOf(e), envelope.Body{}
	if request.GetBody != nil { // a redirect has not dropped it
		body = e.Call.Body
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	signatures := make([]string, 0, len(keys))
	for _, key := range keys {
		sum := hmac.New(sha256.New, []byte(key.Key))
		_, _ = io.WriteString(sum, id+"."+timestamp+".") // a hash never fails
		_, _ = body.WriteTo(sum)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	}
	request.Header[webhookID] = []string{id}
	request.Header[webhookTimestamp] = []string{timestamp}
	request.Header[webhookSignature] = []string{strings.Join(signatures, " ")}
}

// webhookIDOf returns the id by which a target recognizes a call that it has received before: the same for all
// attempts, and another one for another request id or tenant. A callback has a request id of its own.
func webhookIDOf(e *envelope.Envelope) string {
	// Quoted texts have no separator that one of them could contain.
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", e.Tenant.Organization, e.Tenant.Environment, e.RequestID))
	return "msg_" + hex.EncodeToString(sum[:16])
}
