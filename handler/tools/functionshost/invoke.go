package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/listener"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/storage"
)

// idleConnTimeout is when .NET closes an unused connection.
const idleConnTimeout = time.Minute

// errNoResult means that the host ignores the answer and waits until the function times out.
var errNoResult = errors.New("handler answered with success and no JSON object")

// newClient returns a client that behaves like .NET's in the real host: HTTP/1.1, no proxy, no cookies, no
// compression, no limit on connections, redirects followed (here at most 10).
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: storage.MaxBatch, IdleConnTimeout: idleConnTimeout,
	}}
}

// invoker sends invocations to the handler.
type invoker struct {
	handler  *handler
	timeout  time.Duration // functionTimeout; 0 or less: none
	grace    time.Duration
	log      zerolog.Logger
	inFlight atomic.Int64
}

// result is the answer of the handler to an invocation.
type result struct {
	Outputs map[string]json.RawMessage
	Logs    []string
}

// invoke is answer for an invocation without outputs.
func (i *invoker) invoke(ctx context.Context, inv invocation) listener.Result {
	if _, ok := i.answer(ctx, inv); !ok {
		return listener.Failed
	}
	return listener.Succeeded
}

// answer waits for a handler that is ready, sends it the invocation and judges the answer. The end of ctx cuts
// the invocation short.
func (i *invoker) answer(ctx context.Context, inv invocation) (answered result, ok bool) {
	i.inFlight.Add(1)
	defer i.inFlight.Add(-1)
	proc := i.handler.await(ctx)
	if proc == nil {
		return answered, false
	}

	id := uuid.NewString()
	log := i.log.With().Str("function", inv.function).Str("invocation_id", id).Logger()
	executing := log.Info().Str("reason", inv.reason)
	if inv.message.ID != "" {
		executing = executing.Str("message_id", inv.message.ID).Int64("dequeue_count", inv.message.DequeueCount)
	}
	executing.Msg("Executing")
	begin := time.Now()
	err := inv.err
	if err == nil {
		answered, err = i.exchange(ctx, proc, id, inv, log)
	}
	took := time.Since(begin)
	if err != nil {
		log.Error().Err(err).Int64(logs.Took, logs.Millis(took)).Str("result", "Failed").Msg("Executed")
		return answered, false
	}
	for _, line := range answered.Logs {
		log.Info().Msg(line)
	}
	log.Info().Int64(logs.Took, logs.Millis(took)).Str("result", "Succeeded").Msg("Executed")
	return answered, true
}

// exchange posts the invocation and returns the answer. If the answer is not there when the
// function times out, it kills the handler after the grace (docs/host.md, "Function timeout").
func (i *invoker) exchange(
	ctx context.Context, proc *process, id string, inv invocation, log zerolog.Logger,
) (result, error) {
	begin := time.Now()
	if i.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, i.timeout+i.grace)
		defer cancel()
	}
	answered, err := i.post(ctx, id, inv)
	if errors.Is(err, errNoResult) {
		log.Warn().Int64("function_timeout", logs.Millis(i.timeout)).
			Msg(err.Error() + ": the host waits until functionTimeout")
		<-ctx.Done()
	}
	if i.timeout > 0 && time.Since(begin) >= i.timeout {
		log.Error().Int64("function_timeout", logs.Millis(i.timeout)).
			Msg("function timed out: killing and restarting the handler")
		i.handler.replace(proc)
		return result{}, fmt.Errorf("timed out after %v (functionTimeout)", i.timeout)
	}
	return answered, err
}

// post sends one invocation, chunked as in Azure (docs/host.md, "Invocation request").
func (i *invoker) post(ctx context.Context, id string, inv invocation) (result, error) {
	address := i.handler.address + "/" + url.PathEscape(inv.function)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(inv.body))
	if err != nil {
		return result{}, fmt.Errorf("invoke %s: %w", inv.function, err)
	}
	request.ContentLength = -1
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("User-Agent", "Azure-Functions-Host/"+hostVersion)
	request.Header.Set("X-Azure-Functions-HostVersion", hostVersion)
	request.Header.Set("X-Azure-Functions-InvocationId", id)

	response, err := i.handler.client.Do(request)
	if err != nil {
		return result{}, fmt.Errorf("handler did not answer: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return result{}, fmt.Errorf("handler broke off its answer: %w", err)
	}
	return judge(response.StatusCode, response.Header.Get("Content-Type"), answer)
}

// judge returns what an answer says, or why the invocation failed (docs/host.md, "Answers"). No error contains
// anything of the body.
func judge(status int, contentType string, body []byte) (answered result, err error) {
	if status < 200 || status > 299 {
		return answered, fmt.Errorf("handler answered %d %s", status, http.StatusText(status))
	}
	if len(body) == 0 {
		return answered, errNoResult
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil || mediaType != "application/json" && mediaType != "text/json" {
		return answered, fmt.Errorf("handler answered %d with media type %q: the host reads application/json only",
			status, contentType)
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if len(body) == 0 || string(body) == "null" {
		return answered, errNoResult
	}
	// The real host ignores what follows the object; a handler must not rely on that.
	if json.Unmarshal(body, &answered) != nil {
		return result{}, errors.New("handler answered with JSON other than an object with the object Outputs " +
			"and the strings Logs")
	}
	return answered, nil
}
