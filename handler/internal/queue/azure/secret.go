package azure

import "fmt"

// Secret is text that must not be seen: a key, a signature. However it is printed, logged or marshalled
// it comes out as ***; converting it to string gives the text. Two ways of package fmt around this remain:
// it does not ask a value in an unexported field how it wants to be printed, so keep secrets in exported
// ones; and it asks no value for %p, a misuse that go vet reports.
type Secret string

const masked = "***"

// String returns ***.
func (Secret) String() string { return masked }

// GoString returns ***.
func (Secret) GoString() string { return masked }

// Format writes *** for every verb, the wrong ones included: %d would print the text otherwise.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// MarshalText returns ***, which is what JSON and loggers then show.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
