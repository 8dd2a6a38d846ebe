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

	"asynccaller/handler/internal/strictjson"
)

const (
	// jqTime is far more than an edit of 64 KiB needs, and ends an expression that does not end.
	jqTime = 2 * time.Second
	// maxResult is the size of the largest result that is written as JSON, in bytes: more than any message
	// holds, and little enough to find out what is wrong with it.
	maxResult = 1 << 20
)

var errEndless = fmt.Errorf("the expression has not come to an end within %v", jqTime)

// JQ is an expression of jq that makes an envelope of an envelope.
type JQ struct{ code *gojq.Code }

// ParseJQ reads the argument of --jq, an expression in the language of jq. Its input is the whole envelope
// in the JSON of its own format, and it must make exactly one object. Neither files nor the environment nor
// other input are within its reach. What it leaves as it was keeps its bytes and its place. An expression has
// two seconds for a message; the memory that it takes is bounded by that alone.
func ParseJQ(expression string) (JQ, error) {
	query, err := gojq.Parse(expression)
	if syntax, ok := errors.AsType[*gojq.ParseError](err); ok {
		// The token is not told: it may be a secret that stands in the expression.
		return JQ{}, fmt.Errorf("--jq: not an expression of jq: it goes wrong at byte %d", syntax.Offset)
	}
	if err != nil {
		return JQ{}, errors.New("--jq: not an expression of jq")
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return JQ{}, fmt.Errorf("--jq: %s", withoutValues(err))
	}
	return JQ{code: code}, nil
}

func (f JQ) apply(ctx context.Context, content []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, jqTime, errEndless)
	defer cancel()
	input, err := decodeNumbers(content)
	if err != nil {
		return nil, err
	}
	result, err := onlyResult(ctx, f.code.RunWithContext(ctx, input))
	if err != nil {
		return nil, err
	}
	if _, ok := result.(map[string]any); !ok {
		return nil, fmt.Errorf("the expression makes a result of type %s of this message: want one object", gojq.TypeOf(result))
	}
	if size(result, maxResult, 0) > maxResult {
		return nil, errors.New("the expression makes more of this message than any message holds")
	}
	edited, err := gojq.Marshal(result)
	if err != nil {
		return nil, errors.New("the result cannot be written as JSON")
	}
	return strictjson.Merge{Same: sameMeaning, KeepOrder: true}.Values(content, edited)
}

// onlyResult is the one result that there must be.
func onlyResult(ctx context.Context, results gojq.Iter) (any, error) {
	result, ok := results.Next()
	if err, failed := result.(error); failed {
		return nil, because(ctx, err)
	}
	if !ok {
		return nil, errors.New("the expression makes nothing of this message: want one object")
	}
	another, ok := results.Next()
	if err, failed := another.(error); failed {
		return nil, because(ctx, err)
	}
	if ok {
		return nil, errors.New("the expression makes more than one result of this message: want one object")
	}
	return result, nil
}

// because is why an expression failed, without what it failed on: that is part of the message.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, raised := errors.AsType[gojq.ValueError](err); raised {
		return errors.New("the expression raises an error of its own for this message")
	}
	return fmt.Errorf("the expression fails on this message: %s", withoutValues(err))
}

// withoutValues is an error of gojq up to the value that it quotes; names that the expression uses without
// defining them are told.
func withoutValues(err error) string {
	text := err.Error()
	if what, name, found := strings.Cut(text, " not defined: "); found {
		return strictjson.Printable(what) + " not defined: " + strictjson.Printable(strings.ReplaceAll(name, "/", "."))
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

// size is about how long a value is as JSON, in bytes, or something larger than limit. A value may hold
// the same part millions of times, so counting ends there.
func size(value any, limit, depth int) int {
	const deepest = 10_000 // encoding/json reads no more
	total := 1
	switch v := value.(type) {
	case string:
		return total + len(v)
	case json.Number:
		return len(v)
	case *big.Int:
		return total + v.BitLen()/3
	case []any:
		for _, element := range v {
			if total > limit || depth > deepest {
				return limit + 1
			}
			total += size(element, limit-total, depth+1)
		}
	case map[string]any:
		for name, element := range v {
			if total > limit || depth > deepest {
				return limit + 1
			}
			total += len(name) + size(element, limit-total, depth+1)
		}
	}
	return total
}

// decodeNumbers reads JSON with its numbers as they are written: a large one would lose digits.
func decodeNumbers(content []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// sameMeaning compares values that a program has read and written: it may spell strings in another way, but not numbers.
func sameMeaning(a, b json.RawMessage) bool {
	first, err := decodeNumbers(a)
	if err != nil {
		return false
	}
	second, err := decodeNumbers(b)
	return err == nil && reflect.DeepEqual(first, second)
}
