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
	var tables storage.Tables
	opened, noTables := azure.OpenTables(a.Connection)
	if noTables == nil {
		tables = opened
	}
	op = New(a, appQueues, store, tables)
	if a.Connection.AccountKey == "" && a.Connection.SAS == "" {
		op.Identity = store.Holder
	}
	return op, store.Close, nil
}

// New returns the operations on an account, of whose queues apps read some. The tables are nil if there are none.
func New(a config.App, appQueues []string, store storage.Queues, tables storage.Tables) *Operations {
	op := &Operations{
		Account: &account.Account{
			Store:     store,
			Name:      a.Connection.Account(),
			AppQueues: appQueues,
			Reached:   new(atomic.Bool),
			Rules: message.Rules{
				Encoding: a.Host.Queues.MessageEncoding,
				Decision: a.Settings.Rules,
				Guard:    a.Settings.Guard,
				Routed:   a.RoutedQueues(),
			},
		},
		History:          tables,
		HistoryRetention: a.Settings.HistoryRetention,
	}
	switch {
	case errors.Is(a.FunctionsErr, fs.ErrNotExist):
		op.Account.NoLimits = "its limit is in targets.json: --app names the folder of the app"
	case a.SettingsErr != nil:
		op.Account.NoLimits = "its limit is in targets.json, and the settings of the app are invalid"
	}
	if tables == nil || a.Settings.Tables == config.Off {
		return op
	}
	op.Account.Table, op.Account.AppTable = tables.Table(storage.ScheduledTable), tables.Table(storage.AppTable)
	op.Account.Sight = sight.NewReader(tables.Table(storage.SightTable))
	op.Outcomes = tables.Table(storage.RunTable)
	return op
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
