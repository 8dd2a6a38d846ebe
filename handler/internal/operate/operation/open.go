package operation

import (
	"errors"
	"io/fs"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/send"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// Open opens the account of an app, which a front end gets from [config.ReadApp]. The caller completes the result by
// the folder of journals, the operator and the observers, and closes the account at the end. An error means that the
// app folder or the storage connection is wrong.
func Open(a config.App) (rs *Runs, closeAccount func(), err error) {
	appQueues, err := AppQueues(a)
	err = errors.Join(err, a.ConnectionErr)
	if err != nil {
		return nil, nil, err
	}
	store, err := azure.Open(a.Connection)
	if err != nil {
		return nil, nil, err
	}
	scheduled, outcomes := OpenTables(a)
	rs = &Runs{
		Account: &account.Account{
			Store:     store,
			Name:      a.Connection.Account(),
			AppQueues: appQueues,
			Table:     scheduled,
			Rules: message.Rules{
				Encoding: a.Host.Queues.MessageEncoding,
				Decision: a.Settings.Rules,
				Guard:    a.Settings.Guard,
			},
		},
		Outcomes: outcomes,
	}
	return rs, store.Close, nil
}

// AppQueues returns the queues that function apps read: those that we ship and those in the app folder, if there is
// one.
func AppQueues(a config.App) ([]string, error) {
	names := send.Queues()
	if errors.Is(a.FunctionsErr, fs.ErrNotExist) {
		return names, nil
	}
	if a.Functions == nil {
		return nil, a.FunctionsErr
	}
	return append(names, a.Functions.QueueNames()...), nil // serve reports the problems of the other functions
}

// OpenTables opens the record of scheduled messages and the table of outcomes. It returns nil if messages are not
// recorded, or if the connection names no table service.
func OpenTables(a config.App) (scheduled, outcomes storage.Table) {
	if a.ConnectionErr != nil || a.Settings.Scheduled == config.Off {
		return nil, nil
	}
	table, err := azure.OpenTable(a.Connection)
	if err != nil {
		return nil, nil
	}
	ofRuns, err := azure.OpenOutcomes(a.Connection)
	if err != nil {
		return table, nil
	}
	return table, ofRuns
}
