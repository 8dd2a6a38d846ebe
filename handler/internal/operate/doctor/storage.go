package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/rows"
)

// checkLimit is the longest time for a check. It may need a token first.
const checkLimit = 10 * time.Second

// hostAPIVersion is the newest version of the storage API that a Functions host was seen to use
// (docs/host.md, "Storage account").
const hostAPIVersion = "2026-10-06"

// The id and the receipt of no message, in the service's form.
const noID, noReceipt = "00000000-0000-0000-0000-000000000000", "AgAAAAMAAAAAAAAAAAAAAAAAAAA="

// storage checks the account of an app. Functions read the queues, with messages in this encoding. If the account does
// not answer, that takes seconds.
func (report Reporter) storage(ctx context.Context, a config.App, queues []string, encoding storage.Encoding) {
	conn := a.Connection
	store, err := azure.Open(conn)
	if err != nil {
		report.failed("connection", err, "")
		return
	}
	defer store.Close()
	now, usable := report.reach(ctx, conn.Endpoint)
	if !usable {
		report.skip("permissions, queues, encoding and heartbeats")
		return
	}
	if line := judgeExpiry(conn.SASExpiry(), now); line.State != OK {
		report(line)
	}
	peek := func(ctx context.Context) error {
		_, err := store.Peek(ctx, queues[0], 1)
		return err
	}
	update := func(ctx context.Context) error {
		_, err := store.Update(ctx, queues[0], noID, noReceipt, "", 0)
		return err
	}
	remove := func(ctx context.Context) error { return store.Delete(ctx, queues[0], noID, noReceipt) }
	err = report.try(ctx, "queue access", "role "+storage.QueueRole, peek, update, remove)
	switch {
	case errors.Is(err, azure.ErrNoToken): // neither would the others get one
		report.skip("permissions for tables and blobs, queues, encoding and heartbeats")
		return
	case err != nil:
		report.skip("queues, encoding and poison messages")
	default:
		read := &account.Account{Store: store, Rules: message.Rules{Encoding: encoding, Routed: a.RoutedQueues()}}
		report.queues(ctx, read, queues)
		report.unread(ctx, read, queues)
	}
	running := slices.DeleteFunc(report.tables(ctx, conn, a, now), func(app heartbeat.App) bool {
		return app.Silent(now) != ""
	})
	needsBlobs := func(app heartbeat.App) bool { return app.Adapter != heartbeat.Worker }
	if len(running) == 0 || slices.ContainsFunc(running, needsBlobs) {
		_ = report.try(ctx, "blob access", "role Storage Blob Data Owner",
			func(ctx context.Context) error { return azure.ProbeBlobs(ctx, conn) })
	}
}

// reach asks for an answer without a credential, with the API version of the Functions host. It returns storage's
// time, and false if no other check can succeed.
func (report Reporter) reach(ctx context.Context, endpoint string) (now time.Time, usable bool) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit/2)
	defer cancel()
	begin := time.Now()
	header, err := azure.Reach(ctx, endpoint, hostAPIVersion)
	if err != nil {
		report.failed("storage", err, "")
		return now, false
	}
	report.ok("storage", fmt.Sprintf("%s answers in %v", endpoint, time.Since(begin).Round(time.Millisecond)))
	if strings.HasPrefix(header.Get("Server"), "Azurite") {
		report(judgeEmulator(header.Get("x-ms-error-code")))
	}
	now, err = http.ParseTime(header.Get("Date"))
	if err != nil {
		now = begin // a proxy has removed it
	}
	line := judgeClock(begin.Sub(now))
	report(line)
	return now, line.State != Broken
}

// judgeEmulator judges the error code with which Azurite answers a request with the API version of the Functions
// host. The handler and the commands use an older version.
func judgeEmulator(code string) Line {
	line := Line{State: OK, Check: "emulator", Text: "Azurite accepts the API version of the Functions host"}
	if code == "InvalidHeaderValue" {
		line.State = Warning
		line.Text = "Azurite refuses API version " + hostAPIVersion + ", with which a newer `func start` ends at once"
		line.Next = "start Azurite with --skipApiVersionCheck, as `make azurite` does"
	}
	return line
}

// judgeClock judges how far the local clock is ahead of storage's.
func judgeClock(ahead time.Duration) Line {
	skew := ahead.Abs().Round(time.Second)
	line := Line{State: OK, Check: "clock", Text: fmt.Sprintf("differs by %v from storage's", skew)}
	const synchronize = "synchronize the clock of this machine: "
	switch {
	case skew >= storage.ClockLimit:
		line.State = Broken
		line.Next = fmt.Sprintf("%sstorage refuses signatures from %.0f minutes on", synchronize,
			storage.ClockLimit.Minutes())
	case skew >= storage.ClockWarning:
		line.State = Warning
		line.Next = synchronize + "deadlines and delays are wrong by the difference"
	}
	return line
}

// expiryWarning is how long before a SAS expires a warning begins. Someone has to make another one.
const expiryWarning = 7 * 24 * time.Hour

// judgeExpiry judges when a SAS expires; the zero time is never. Storage itself refuses a SAS that has expired.
func judgeExpiry(expiry, now time.Time) Line {
	left := expiry.Sub(now)
	if expiry.IsZero() || left <= 0 || left > expiryWarning {
		return Line{State: OK}
	}
	return Line{
		State: Warning,
		Check: "connection",
		Text:  fmt.Sprintf("the SAS expires at %s, in %s", expiry.Format(time.RFC3339), format.Age(left)),
		Next:  "set another one in " + storage.ConnectionName + " before, or use an identity, which does not expire",
	}
}

// try checks a permission, and returns the error that it has reported. The operations concern what may not exist.
func (report Reporter) try(ctx context.Context, check, roles string, operations ...func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	for _, run := range operations {
		err := run(ctx)
		permitted := err == nil || errors.Is(err, storage.ErrNoQueue) || errors.Is(err, storage.ErrStale)
		if !permitted {
			report.failed(check, err, roles)
			return err
		}
	}
	report.ok(check, "permitted")
	return nil
}

// queues checks whether the queues exist, how their first messages are encoded, and the poison queues.
func (report Reporter) queues(ctx context.Context, a *account.Account, names []string) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var missing, wronglyEncoded, poison []string
	for _, name := range names {
		front, first := a.Front(ctx, name)
		failed, _ := a.Front(ctx, name+storage.PoisonSuffix)
		if err := cmp.Or(front.Problem, failed.Problem); err != nil {
			report.failed("queues", err, "")
			report.skip("encoding and poison messages")
			return
		}
		if front.Missing {
			missing = append(missing, name)
		}
		if *failed.Messages > 0 {
			poison = append(poison, fmt.Sprintf("%d on %s", *failed.Messages, failed.Queue))
		}
		n := countWronglyEncoded(a.Rules.Encoding, first, a.Rules.IsRaw(name))
		if n > 0 {
			wronglyEncoded = append(wronglyEncoded, fmt.Sprintf("%d of %d on %s", n, len(first), name))
		}
	}
	missingState := Warning
	if len(missing) == len(names) {
		missingState = Broken
	}
	report.items(missing, Line{
		State: missingState,
		Check: "queues",
		Text:  "missing",
		Next: "create them, for example with `async-caller send --url URL`: the host does not; " +
			"or is this the wrong account?",
	}, fmt.Sprintf("none of %d is missing; the first poison message creates a poison queue", len(names)))
	report.items(wronglyEncoded, Line{
		State: Broken,
		Check: "encoding",
		Text:  "first messages that are not encoded as messageEncoding says, " + string(a.Rules.Encoding),
		Next: "correct messageEncoding in host.json, or the sender; " +
			"once the messages are on a poison queue, " +
			"`async-caller calls retry --state poison --all --fix-encoding --dry-run` shows which can be sent",
	}, "the first messages are encoded as messageEncoding says")
	report.items(poison, Line{
		State: Warning,
		Check: "poison",
		Text:  "messages that could not be delivered",
		Next:  "`async-caller calls list --state poison --group-by error`",
	}, "no messages")
}

// countWronglyEncoded counts the messages that the host cannot decode, or would pass on although they are still
// encoded. The content of a message on the queue of a route can be base64.
func countWronglyEncoded(encoding storage.Encoding, messages []storage.Message, isRouted bool) (n int) {
	for _, m := range messages {
		content, err := encoding.Decode(m.Text)
		if err != nil || !isRouted && isWrapped(content) {
			n++
		}
	}
	return n
}

// isWrapped reports whether a content is an object in base64, or an envelope in another form than JSON.
func isWrapped(content []byte) bool {
	decoded, err := storage.Base64.Decode(string(content))
	if err == nil && bytes.HasPrefix(bytes.TrimSpace(decoded), []byte("{")) {
		return true
	}
	_, forms := envelope.Unwrap(content)
	return forms != nil
}

// tables checks each table, and reports what those have that can be used. It returns the apps that have heartbeats.
func (report Reporter) tables(
	ctx context.Context, conn azure.Connection, a config.App, now time.Time,
) (apps []heartbeat.App) {
	const check = "table access"
	tables, err := azure.OpenTables(conn)
	if err != nil || a.Settings.Tables == config.Off {
		report(Line{
			State: Warning,
			Check: check,
			Text:  "calls that wait and heartbeats are not recorded",
			Next:  "set " + config.Prefix + "TABLES to on, and add TableEndpoint to the connection string",
		})
		return nil
	}
	defer tables.Close()
	var failed []string
	for _, name := range []string{storage.ScheduledTable, storage.AppTable, storage.RunTable, storage.SightTable} {
		tryErr := tryTable(ctx, tables.Table(name))
		if tryErr != nil {
			failed = append(failed, name)
			err = cmp.Or(err, tryErr) // the others have the same cause
		}
	}
	if err != nil {
		report.failed(check, fmt.Errorf("%s: %w", strings.Join(failed, ", "), err), "role "+storage.TableRole)
	} else {
		report.ok(check, "permitted")
	}
	if !slices.Contains(failed, storage.ScheduledTable) {
		apps = report.scheduled(ctx, tables.Table(storage.ScheduledTable), now)
	}
	if !slices.Contains(failed, storage.SightTable) {
		report.failing(ctx, tables.Table(storage.SightTable), now)
	}
	if !slices.Contains(failed, storage.AppTable) {
		report.pauses(ctx, tables.Table(storage.AppTable), now)
	}
	return apps
}

// tryTable reads and removes a row that does not exist.
func tryTable(ctx context.Context, table storage.Table) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err := rows.List(ctx, table, storage.Query{Partition: "doctor"}, func(struct{ storage.Key }) error { return nil })
	if err != nil {
		return err
	}
	return table.Delete(ctx, []storage.Key{{Partition: "doctor", ID: noID}})
}

// maxWaiting is how many calls that wait are counted, and maxFailing how many targets that fail or are paused are named
// each.
const (
	maxWaiting = 1000
	maxFailing = 3
)

// scheduled reports the heartbeats of the apps, which it returns, and the calls that wait for their next attempt.
func (report Reporter) scheduled(ctx context.Context, table storage.Table, now time.Time) []heartbeat.App {
	const check = "calls that wait"
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	apps, err := heartbeat.Read(ctx, table)
	if err != nil {
		report.failed("heartbeats", err, "")
		return nil
	}
	for _, line := range judgeHeartbeats(apps, now) {
		report(line)
	}
	waiting := 0
	err = record.ListScheduled(ctx, table, record.Query{}, func(record.Row) error {
		if waiting > maxWaiting {
			return rows.ErrStop
		}
		waiting++
		return nil
	})
	if err != nil {
		report.failed(check, err, "")
		return apps
	}
	text := fmt.Sprint(waiting)
	if waiting > maxWaiting {
		text = fmt.Sprintf("more than %d", maxWaiting)
	}
	report.ok(check, text+" scheduled for their next attempt")
	return apps
}

// failing reports the targets that fail.
func (report Reporter) failing(ctx context.Context, table storage.Table, now time.Time) {
	const check = "targets"
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	failing, err := sight.NewReader(table).Failing(ctx)
	if err != nil {
		report.failed(check, err, "")
		return
	}
	slices.SortFunc(failing, func(a, b sight.Target) int { return b.Latest.Compare(a.Latest) })
	var names []string
	for _, f := range failing[:min(len(failing), maxFailing)] {
		names = append(names, fmt.Sprintf("%s for %s (%s)", f.Host, format.Age(now.Sub(f.Since)), f.Cause))
	}
	if len(failing) > maxFailing {
		names = append(names, "and others")
	}
	report.items(names, Line{
		State: Warning,
		Check: check,
		Text:  fmt.Sprintf("fail (%d)", len(failing)),
		Next:  "`async-caller status`",
	}, "none fails")
}

// pauses reports the targets that are paused.
func (report Reporter) pauses(ctx context.Context, table storage.Table, now time.Time) {
	const check = "pauses"
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	settings, err := setting.Read(ctx, table)
	if err != nil {
		report.failed(check, err, "")
		return
	}
	var names []string
	paused := 0
	for _, s := range settings {
		if s.Member != setting.Pause || !s.IsInForce(now) {
			continue
		}
		paused++
		if paused <= maxFailing {
			names = append(names, s.Host+" "+s.Text())
		}
	}
	if paused > maxFailing {
		names = append(names, fmt.Sprintf("and %d more", paused-maxFailing))
	}
	report.items(names, Line{
		State: Warning,
		Check: check,
		Text:  "no calls are made to targets that are paused",
		Next:  "`async-caller targets resume HOST`, when the target may be called again",
	}, "no target is paused")
}

// failed reports an error of storage. Roles are those that the operation needs.
func (report Reporter) failed(check string, err error, roles string) {
	next := cmp.Or(azure.Advice(err, roles),
		"try again; then check the account's name in "+storage.ConnectionName+", its firewall, the network, its DNS "+
			"and proxies")
	report(Line{State: Broken, Check: check, Text: err.Error(), Next: next})
}
