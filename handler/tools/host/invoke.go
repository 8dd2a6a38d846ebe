package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
)

const (
	// clientTimeoutExtra is what the real host's HTTP client waits beyond functionTimeout.
	clientTimeoutExtra = time.Minute
	// idleConnTimeout is when .NET closes a connection that nobody uses.
	idleConnTimeout = time.Minute
	// maxRedirects is how many redirects .NET's HttpClient follows.
	maxRedirects = 50
)

// outcome is what became of one delivery of a message.
type outcome int

const (
	notInvoked outcome = iota // the host is stopping: the message had no try
	succeeded
	failedTry
)

var (
	errNotText = errors.New("the message is not valid UTF-8: text mode cannot hand it over (use dataType binary)")
	errCut     = errors.New("the host stopped before the handler answered")
)

// newClient returns a client that does as .NET's does in the real host: HTTP/1.1, no proxy, no cookies,
// no compression, redirects followed, as many connections as it takes.
func newClient(functionTimeout time.Duration) *http.Client {
	client := &http.Client{
		Transport: &http.Transport{
			DisableCompression:  true,
			MaxIdleConnsPerHost: queue.MaxBatch,
			IdleConnTimeout:     idleConnTimeout,
		},
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	if functionTimeout > 0 {
		client.Timeout = functionTimeout + clientTimeoutExtra
	}
	return client
}

// invoker hands messages and timer runs to the handler.
type invoker struct {
	handler       *handler
	timeout       time.Duration // functionTimeout; 0 or less: none
	grace         time.Duration
	contentLength bool
	stopping      <-chan struct{}
	fatal         func(error) // stops the host
	log           zerolog.Logger
}

// trigger is what an invocation comes of.
type trigger struct {
	function string
	reason   string // as the real host logs it
	// subject adds to the log line what the invocation is about; nil adds nothing.
	subject zerolog.LogObjectMarshaler
	// body makes the body of the POST. An error fails the invocation without one.
	body func(now time.Time, randGUID string) ([]byte, error)
}

// invoke has the handler work on a message. It returns when the invocation is over, at the latest when
// ctx has ended.
func (i *invoker) invoke(ctx context.Context, fn functionapp.Function, msg queue.Message, content []byte) outcome {
	return i.run(ctx, trigger{
		function: fn.Name,
		reason:   "New queue message detected on '" + fn.Queue + "'.",
		subject:  subject(msg),
		body: func(now time.Time, randGUID string) ([]byte, error) {
			if fn.DataType != functionapp.DataBinary && !utf8.Valid(content) {
				return nil, errNotText
			}
			return invocation{function: fn, message: msg, content: content, now: now, randGUID: randGUID}.body(), nil
		},
	})
}

// subject is what may be logged of a message.
type subject queue.Message

func (s subject) MarshalZerologObject(event *zerolog.Event) {
	event.Str("message_id", s.ID).Int64("dequeue_count", s.DequeueCount)
}

// run waits for a handler that is ready, hands it the invocation and judges the answer.
func (i *invoker) run(ctx context.Context, t trigger) outcome {
	proc, err := i.handler.await(i.stopping)
	if err != nil {
		if errors.Is(err, errInitTime) {
			i.fatal(fmt.Errorf("no handler was ready for %v: %w", readyRounds*i.handler.readyTimeout, err))
		}
		return notInvoked
	}

	id := uuid.NewString()
	log := i.log.With().Str("function", t.function).Str("invocation_id", id).Logger()
	log.Info().Str("reason", t.reason).EmbedObject(t.subject).Msg("Executing")
	begin := time.Now()
	var answer judgement
	if body, err := t.body(begin, uuid.NewString()); err != nil {
		answer = failed(err)
	} else {
		answer = i.exchange(ctx, proc, id, t.function, body, log)
	}
	took := time.Since(begin)
	if answer.verdict != success {
		log.Error().Err(answer.err).Dur("took", took).Str("result", "Failed").Msg("Executed")
		return failedTry
	}
	for _, line := range answer.logs {
		log.Info().Msg(line)
	}
	log.Info().Dur("took", took).Str("result", "Succeeded").Msg("Executed")
	return succeeded
}

// exchange posts the invocation and waits for the answer until the function times out; then the
// handler is condemned: section C.6 of the Functions host contract. It never returns hang.
func (i *invoker) exchange(ctx context.Context, proc *process, id, function string, body []byte, log zerolog.Logger) judgement {
	var posting sync.WaitGroup
	defer posting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan judgement, 1)
	posting.Go(func() { answers <- i.post(ctx, id, function, body) })

	var timeout <-chan time.Time
	if i.timeout > 0 {
		timer := time.NewTimer(i.timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		select {
		case answer := <-answers:
			if answer.verdict != hang {
				return answer
			}
			log.Warn().Dur("function_timeout", i.timeout).
				Msg("handler answered with success and no JSON object: the host waits on until functionTimeout")
		case <-timeout:
			log.Error().Dur("function_timeout", i.timeout).Msg("function timed out: the handler will be killed and restarted")
			grace := time.NewTimer(i.grace)
			defer grace.Stop()
			select {
			case <-answers: // too late to count
			case <-grace.C:
			case <-ctx.Done():
			}
			i.handler.condemn(proc)
			return failed(fmt.Errorf("timed out after %v (functionTimeout)", i.timeout))
		case <-ctx.Done():
			return failed(errCut)
		}
	}
}

// post sends one invocation: section A.1 of the Functions host contract.
func (i *invoker) post(ctx context.Context, id, function string, body []byte) judgement {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, i.handler.address+"/"+url.PathEscape(function), bytes.NewReader(body))
	if err != nil {
		return failed(fmt.Errorf("invoke %s: %w", function, err))
	}
	if !i.contentLength {
		request.ContentLength = -1
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("User-Agent", "Azure-Functions-Host/"+hostVersion)
	request.Header.Set("X-Azure-Functions-HostVersion", hostVersion)
	request.Header.Set("X-Azure-Functions-InvocationId", id)

	response, err := i.handler.client.Do(request)
	if err != nil {
		return failed(fmt.Errorf("handler gave no answer: %w", withoutURL(err)))
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err != nil {
		return failed(fmt.Errorf("handler broke off its answer: %w", withoutURL(err)))
	}
	if len(answer) > maxAnswerBytes {
		return failed(fmt.Errorf("handler answered with more than %d bytes", maxAnswerBytes))
	}
	return judge(response.StatusCode, response.Header.Get("Content-Type"), answer)
}

// withoutURL returns the cause of an HTTP client's error: the address is always the same.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
