package secret

import "fmt"

// Text is a text that must not be shown: a key or a signature. It prints, logs and marshals as ***; a conversion to
// string returns the text. Package fmt still prints it in two cases: in an unexported field, so keep secrets in
// exported fields, and for %p, a mistake that go vet reports.
type Text string

const masked = "***"

// String returns ***.
func (Text) String() string { return masked }

// GoString returns ***.
func (Text) GoString() string { return masked }

// Format writes *** for every verb, also for the wrong ones: %d would otherwise print the text.
func (Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// MarshalText returns ***, for JSON and loggers.
func (Text) MarshalText() ([]byte, error) { return []byte(masked), nil }
