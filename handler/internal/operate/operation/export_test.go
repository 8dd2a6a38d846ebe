package operation

import (
	"io"

	"asynccaller/handler/internal/operate/account"
)

// ReadRecords is readRecords, for a fuzz test.
func ReadRecords(in io.Reader, visit func(account.Found) error) error {
	return readRecords(in, func(r exported) error { return visit(r.Found) })
}
