package operation

import (
	"errors"
	"io/fs"
	"sync/atomic"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// Open opens the account of an app, which a front end gets from [config.ReadApp]. The caller completes the result by
// the folder of journals, the operator and the observers, and closes the account at the end. An error means that the
// app folder or the storage connection is wrong.
func Open(a config.App) (op *Operations, closeAccount func(), err error) {
	appQueues, err := AppQueues(a)
	err = errors.Join(err, a.ConnectionErr)
	if err != nil {
		return nil, nil, err
	}
	store, err := azure.Open(a.Connection)
	if err != nil {
		return nil, nil, err
	}
	tables := OpenTables(a)
	op = &Operations{
		Account: &account.Account{
			Store:     store,
			Name:      a.Connection.Account(),
			AppQueues: appQueues,
			Table:     tables.Scheduled,
			AppTable:  tables.App,
			Sight:     tables.sightReader(),
			Reached:   new(atomic.Bool),
			Rules: message.Rules{
				Encoding: a.Host.Queues.MessageEncoding,
				Decision: a.Settings.Rules,
				Guard:    a.Settings.Guard,
				Routed:   a.RoutedQueues(),
			},
		},
		Outcomes:         tables.Outcomes,
		HistoryRetention: a.Settings.HistoryRetention,
	}
	history, noTables := azure.OpenTables(a.Connection)
	if noTables == nil {
		op.History = history
	}
	return op, store.Close, nil
}

// AppQueues returns the queues that function apps read: those that we ship and those in the app folder, if there is
// one.
func AppQueues(a config.App) ([]string, error) {
	names := envelope.Queues()
	if errors.Is(a.FunctionsErr, fs.ErrNotExist) {
		return names, nil
	}
	if a.Functions == nil {
		return nil, a.FunctionsErr
	}
	return append(names, a.Functions.QueueNames()...), nil // serve reports the problems of the other functions
}

// Tables are the tables of an account. They are nil if messages are not recorded, or if the connection names no table
// service.
type Tables struct {
	// Scheduled is the record of scheduled messages, Outcomes has the outcomes of messages of runs and the runs, and
	// App what the instances of an app share.
	Scheduled, Outcomes, App storage.Table
	// Sight has what each instance of an app knows of targets.
	Sight storage.Table
}

func (t Tables) sightReader() *sight.Reader {
	if t.Sight == nil {
		return nil
	}
	return sight.NewReader(t.Sight)
}

// OpenTables opens the tables of an app's account.
func OpenTables(a config.App) (t Tables) {
	if a.ConnectionErr != nil || a.Settings.Tables == config.Off {
		return t
	}
	for name, target := range map[string]*storage.Table{
		storage.ScheduledTable: &t.Scheduled, storage.RunTable: &t.Outcomes, storage.AppTable: &t.App,
		storage.SightTable: &t.Sight,
	} {
		table, err := azure.OpenTable(a.Connection, name)
		if err == nil {
			*target = table
		}
	}
	return t
}
