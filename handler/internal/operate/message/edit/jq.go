package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

const (
	// jqTime is far more than an edit of 1 MiB needs, and stops an expression that does not end.
	jqTime = 2 * time.Second
	// maxResult limits the result that is written as JSON, in bytes. It is more than any envelope with its body has.
	maxResult = 2 * envelope.MaxBody
	// maxResultDepth is how deep encoding/json reads.
	maxResultDepth = 10_000
)

// errNexusJQ is why a jq expression cannot edit a Nexus message, whose calls it would see in base64.
var errNexusJQ = errors.New("the message is a Nexus message: use --set call.url=URL and such flags, or --edit")

var errEndless = fmt.Errorf("the expression did not finish within %v", jqTime)

// ParseJQ reads the argument of --jq, an expression in the language of jq. The input of the expression is a whole
// native envelope, and its result must be exactly one object. It cannot read files, the environment or other input.
// Unchanged parts keep their bytes and their position. An expression has two seconds for each message; only that limits
// the memory it uses.
func ParseJQ(expression string) (Edit, error) {
	query, err := gojq.Parse(expression)
	if syntax, ok := errors.AsType[*gojq.ParseError](err); ok {
		// The error does not quote the token: it may be a secret.
		return Edit{}, fmt.Errorf("not a jq expression: error at byte %d", syntax.Offset)
	}
	if err != nil {
		return Edit{}, errors.New("not a jq expression")
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return Edit{}, errors.New(withoutValues(err))
	}
	return Edit{flag: "--jq", apply: func(ctx context.Context, content []byte) ([]byte, error) {
		if envelope.IsNexus(content) {
			return nil, errNexusJQ
		}
		return applyJQ(ctx, code, content)
	}}, nil
}

func applyJQ(ctx context.Context, code *gojq.Code, content []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, jqTime, errEndless)
	defer cancel()
	input, err := decodeNumbers(content)
	if err != nil {
		return nil, err
	}
	result, err := onlyResult(ctx, code.RunWithContext(ctx, input))
	if err != nil {
		return nil, err
	}
	if _, ok := result.(map[string]any); !ok {
		return nil, fmt.Errorf("the result for this message has the type %s: want one object", gojq.TypeOf(result))
	}
	if size(result, maxResult, 0) > maxResult {
		return nil, errors.New("the result for this message is larger than any message")
	}
	edited, err := gojq.Marshal(result)
	if err != nil {
		return nil, errors.New("the result cannot be written as JSON")
	}
	return strictjson.Merge{Same: sameMeaning, KeepOrder: true}.Values(content, edited)
}

// onlyResult returns the result of an expression that must have exactly one.
func onlyResult(ctx context.Context, results gojq.Iter) (only any, err error) {
	for n := 0; ; n++ {
		result, ok := results.Next()
		err, failed := result.(error)
		switch {
		case failed:
			return nil, failure(ctx, err)
		case !ok && n == 0:
			return nil, errors.New("the expression has no result for this message: want one object")
		case !ok:
			return only, nil
		case n == 1:
			return nil, errors.New("the expression has more than one result for this message: want one object")
		}
		only = result
	}
}

// failure returns why an expression failed, without the value on which it failed: that is part of the message.
func failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, raised := errors.AsType[gojq.ValueError](err); raised {
		return errors.New("the expression raises an error of its own for this message")
	}
	return fmt.Errorf("the expression fails on this message: %s", withoutValues(err))
}

// withoutValues returns an error of gojq up to the value that it quotes. It includes undefined names of the expression.
func withoutValues(err error) string {
	text := err.Error()
	if what, name, found := strings.Cut(text, " not defined: "); found {
		return strictjson.Quotable(what) + " not defined: " + strictjson.Quotable(strings.ReplaceAll(name, "/", "."))
	}
	if end := strings.IndexAny(text, ":(\"[{"); end >= 0 {
		text = text[:end]
	}
	for _, before := range []string{" applied to ", "cannot divide ", "cannot modulo "} {
		if begin, _, found := strings.Cut(text, before); found {
			text = begin + before
		}
	}
	return strings.TrimSpace(text)
}

// size returns the approximate size of a value as JSON, in bytes, or something larger than limit. It stops counting
// there, because a value may contain the same part millions of times.
func size(value any, limit, depth int) int {
	total := 1
	add := func(name string, element any) {
		if depth > maxResultDepth {
			total = limit + 1
		}
		if total <= limit {
			total += len(name) + size(element, limit-total, depth+1)
		}
	}
	switch v := value.(type) {
	case string:
		total += len(v)
	case json.Number:
		total += len(v)
	case *big.Int:
		total += v.BitLen() / 3
	case []any:
		for _, element := range v {
			add("", element)
		}
	case map[string]any:
		for name, element := range v {
			add(name, element)
		}
	}
	return total
}

// decodeNumbers reads JSON and keeps the spelling of numbers, because large ones would lose digits.
func decodeNumbers(content []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// sameMeaning compares values that a program has read and written: it may spell strings in another way, but not
// numbers.
func sameMeaning(a, b json.RawMessage) bool {
	first, err := decodeNumbers(a)
	if err != nil {
		return false
	}
	second, err := decodeNumbers(b)
	return err == nil && reflect.DeepEqual(first, second)
}
