package poison

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"asynccaller/handler/internal/nearest"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/strictjson"
)

// Requeue says how messages are sent again.
type Requeue struct {
	// To is the queue; empty means the main queue of the poison queue on which a message is. Create allows a queue that does
	// not exist and that no function reads.
	To     string
	Create bool
	Edit   edit.Options
	Pace   journal.Pace
	// Dedupe sends only the latest message of each call, and refuses the others.
	Dedupe bool
}

// CheckRequeue returns why nothing can be requeued like this, or a warning if nobody would receive the messages.
func (a *Account) CheckRequeue(ctx context.Context, r Requeue) (warning string, err error) {
	if r.Pace.Delay+r.Pace.Spread > queue.MaxDelay {
		return "", fmt.Errorf("delay and spread are %v together: a message can wait %v at most", r.Pace.Delay+r.Pace.Spread, queue.MaxDelay)
	}
	if r.To == "" {
		return "", nil
	}
	all, err := a.reach(ctx)
	if err == nil {
		err = a.checkNew(all, r.To, r.Create)
	}
	if err == nil && !a.isRead(all, r.To) {
		warning = fmt.Sprintf("no function of the app reads %s: messages that are sent to it wait there", r.To)
	}
	return warning, err
}

// mostNames is the largest number of queues that an error lists.
const mostNames = 20

// checkNew refuses a queue to write to that does not exist, unless a function reads it or the user wants it created:
// nobody would look for messages on a queue whose name is misspelt.
func (a *Account) checkNew(all []string, to string, create bool) error {
	switch {
	case !queue.ValidName(to):
		return fmt.Errorf("queue %.80q: not the name of a queue", to)
	case create, slices.Contains(all, to), a.isRead(all, to):
		return nil
	}
	known := slices.Compact(slices.Sorted(slices.Values(slices.Concat(all, a.AppQueues))))
	exist := strings.Join(all[:min(len(all), mostNames)], ", ")
	if more := len(all) - mostNames; more > 0 {
		exist += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s: %w, and no function of the app reads it%s\nqueues that exist: %s\nto create it, give --create",
		to, queue.ErrNoQueue, nearest.Hint(to, known), cmp.Or(exist, "none"))
}

// PlanRequeue prepares to send messages again. It refuses messages that would only come back.
func (a *Account) PlanRequeue(ctx context.Context, s Source, r Requeue) (*Plan, error) {
	if _, err := a.CheckRequeue(ctx, r); err != nil {
		return nil, err
	}
	requeue, err := a.requeue(ctx, s, r)
	if err != nil {
		return nil, err
	}
	return a.plan(ctx, journal.Run{Command: "requeue", Pace: r.Pace}, s, requeue)
}

func (a *Account) requeue(ctx context.Context, s Source, r Requeue) (change, error) {
	now := time.Now()
	send := func(ctx context.Context, f Found) (journal.Step, error) {
		to, err := Target(f.Queue, r.To)
		if err != nil {
			return journal.Step{}, err
		}
		text, err := edit.Prepare(ctx, a.Rules, f.Text, f.ID, r.Edit, now)
		return journal.Step{Before: f.Text, To: to, After: text}, err
	}
	if r.Dedupe {
		return a.dedupe(ctx, s, send)
	}
	return send, nil
}

// Target returns the queue to which a message is requeued: the given one, or the main queue of a poison queue. The queue
// that a dead letter names does not count, because any sender can have written it.
func Target(from, to string) (string, error) {
	if main := mainQueue(from); to != "" || main != from {
		return cmp.Or(to, main), nil
	}
	return "", fmt.Errorf("%s is not a poison queue, so its main queue is unknown: name the queue to send to with --to", from)
}

// Preview shows what requeueing would change, without changing anything. For a message that would be refused, why is the
// reason, and the queue and the content mean nothing.
func (a *Account) Preview(ctx context.Context, s Source, r Requeue, see func(f Found, to string, after []byte, why error)) (Listed, error) {
	if _, err := a.CheckRequeue(ctx, r); err != nil {
		return Listed{}, err
	}
	requeue, err := a.requeue(ctx, s, r)
	if err != nil {
		return Listed{}, err
	}
	return a.List(ctx, s, func(f Found) {
		step, err := requeue(ctx, f)
		see(f, step.To, a.Rules.Content(step.After), err)
	})
}

// Move says where messages are moved.
type Move struct {
	// To is the queue. Create allows one that does not exist and that no function reads.
	To     string
	Create bool
}

// PlanMove prepares to move messages unchanged to another queue. To send messages again, use PlanRequeue, which
// resets their state.
func (a *Account) PlanMove(ctx context.Context, s Source, m Move) (*Plan, error) {
	all, err := a.reach(ctx)
	if err == nil {
		err = a.checkNew(all, m.To, m.Create)
	}
	if err == nil && !s.Force {
		err = a.checkQueue(all, m.To, "use requeue to send messages to it, or --force to move them there unchanged")
	}
	if err != nil {
		return nil, err
	}
	return a.plan(ctx, journal.Run{Command: "move"}, s, func(_ context.Context, f Found) (journal.Step, error) {
		if f.Queue == m.To {
			return journal.Step{}, errors.New("it is there already")
		}
		return journal.Step{Before: f.Text, To: m.To}, nil
	})
}

// Backup says which copy of deleted messages to keep.
type Backup struct {
	// Path is the file to export them to; empty for one in the folder of journals. With None no copy is kept, so
	// the run cannot be undone.
	Path string
	None bool
}

// PlanDelete prepares to delete messages, and exports them.
func (a *Account) PlanDelete(ctx context.Context, s Source, b Backup) (*Plan, error) {
	run := journal.Run{Command: "delete"}
	if b.None {
		return a.plan(ctx, run, s, func(context.Context, Found) (journal.Step, error) { return journal.Step{}, nil })
	}
	file, err := a.createBackup(b.Path)
	if err != nil {
		return nil, fmt.Errorf("export before deleting: %w", err)
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	p, err := a.plan(ctx, run, s, func(_ context.Context, f Found) (journal.Step, error) {
		return journal.Step{Before: f.Text}, WriteRecord(out, f)
	})
	if err == nil {
		p.Backup = file.Name()
		if err = errors.Join(out.Flush(), file.Sync()); err == nil {
			return p, nil
		}
		p.Discard(ctx)
	}
	_ = os.Remove(file.Name())
	return nil, fmt.Errorf("export before deleting: %w", err)
}

func (a *Account) createBackup(path string) (*os.File, error) {
	if path != "" {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names it
	}
	if err := os.MkdirAll(string(a.Runs), 0o700); err != nil {
		return nil, err
	}
	return os.CreateTemp(string(a.Runs), time.Now().UTC().Format("20060102-150405")+"-deleted-*.export")
}

// Import says where exported messages are written.
type Import struct {
	// To is the queue; empty means the one that each message was exported from.
	To string
	// Force allows queues that are not poison queues of the app: those that it reads, and those of other apps.
	Force bool
}

// PlanImport prepares to write exported messages to a queue. The file may come from elsewhere, and it names the queues.
func (a *Account) PlanImport(ctx context.Context, in io.Reader, o Import) (*Plan, error) {
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	p, err := a.newPlan(journal.Run{Command: "import"})
	if err != nil {
		return nil, err
	}
	err = ReadRecords(in, func(r Found) error {
		to := cmp.Or(o.To, r.Queue)
		if !queue.ValidName(to) {
			return fmt.Errorf("queue: %.80q is not the name of a queue", to)
		}
		if err := a.checkImport(all, to); err != nil && !o.Force {
			return err
		}
		if err := queue.CheckText(r.Text); err != nil {
			return fmt.Errorf("text: %w", err)
		}
		return p.add(journal.Step{N: p.Total, To: to, After: r.Text, RequestID: r.RequestID})
	})
	if err == nil && p.Total == 0 {
		err = fmt.Errorf("import: %w: the file has no messages", ErrNothing)
	}
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// checkImport refuses a queue that is not a poison queue of the app.
func (a *Account) checkImport(all []string, to string) error {
	if err := a.checkQueue(all, to, "import to a poison queue and requeue, or use --force"); err != nil {
		return err
	}
	if main := mainQueue(to); main == to || !slices.Contains(a.AppQueues, main) {
		return fmt.Errorf("queue %s: %w; name the app folder with --app, or use --force", to, ErrOtherQueue)
	}
	return nil
}

// PlanKeep prepares to keep messages that storage would delete, which are those that the host moved. It writes them
// again without an expiry, and adds to an envelope the dead letter that the handler would have added.
func (a *Account) PlanKeep(ctx context.Context, s Source) (*Plan, error) {
	s.expiring = true
	return a.plan(ctx, journal.Run{Command: "keep"}, s, func(_ context.Context, f Found) (journal.Step, error) {
		return journal.Step{Before: f.Text, To: f.Queue, After: a.deadLettered(f)}, nil
	})
}

// maxRecord exceeds a text of 64 KiB, each byte taking up to six in JSON, with its description.
const maxRecord = 1 << 20

// WriteRecord writes a message as one line of printable JSON. Content that is not UTF-8 is base64 in the text, so nothing
// is lost.
func WriteRecord(out io.Writer, f Found) error {
	line, err := strictjson.Line(f)
	if err == nil {
		_, err = out.Write(line)
	}
	return err
}

// ReadRecords reads the lines that WriteRecord wrote. Its error names the line.
func ReadRecords(in io.Reader, see func(Found) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxRecord)
	n := 0
	for lines.Scan() {
		n++
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var r struct {
			Found
			Text *string `json:"text"`
		}
		err := json.Unmarshal(lines.Bytes(), &r)
		switch {
		case err != nil:
			err = fmt.Errorf("not a line of an export: %w", err)
		case r.Text == nil:
			err = errors.New("text: missing: this is not a line of an export")
		default:
			r.Found.Text = *r.Text
			err = see(r.Found)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d bytes: this is not a line of an export", n+1, maxRecord)
	}
	return lines.Err()
}

// CSVHeader names the columns of [CSVRow].
var CSVHeader = []string{
	"queue", "id", "since", "reason", "status", "attempts", "method", "host", "path", "request id", "expires", "detail", "text",
}

// CSVRow returns a message as a row for a spreadsheet. PlanImport reads only JSON lines.
func CSVRow(f Found) []string {
	status, expires := "", ""
	if f.Status != 0 {
		status = strconv.Itoa(f.Status)
	}
	if !f.ExpiresAt.IsZero() {
		expires = f.ExpiresAt.Format(time.RFC3339)
	}
	row := []string{
		f.Queue, f.ID, f.Since.Format(time.RFC3339), f.Reason, status, strconv.Itoa(f.Attempts), f.Method, f.Host, f.Path,
		f.RequestID, expires, f.Detail, f.Text,
	}
	for i, text := range row {
		row[i] = cell(text)
	}
	return row
}

// formulas are the characters that begin a formula in a spreadsheet
// (https://owasp.org/www-community/attacks/CSV_Injection), in every width.
const formulas = "=+-@＝＋－＠﹦﹢﹣﹫−"

// cell returns a text that a spreadsheet does not evaluate and a terminal does not obey. It escapes unprintable
// characters, line breaks included, and puts an apostrophe before a formula. In some languages a semicolon ends a cell.
func cell(text string) string {
	var printable strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			printable.WriteRune(r)
			continue
		}
		escape := strconv.QuoteRune(r)
		printable.WriteString(escape[1 : len(escape)-1])
	}
	parts := strings.Split(printable.String(), ";")
	for i, part := range parts {
		if first, _ := utf8.DecodeRuneInString(strings.TrimLeft(part, ` '"`)); strings.ContainsRune(formulas, first) {
			parts[i] = "'" + part
		}
	}
	return strings.Join(parts, ";")
}
