// Package functionapp reads an app folder as the Functions host does: host.json, and the function.json files one
// level below it. The handler and the local host both use it, so each app configures its queues, its timers and the
// encoding of its messages in one place.
package functionapp

import (
	"time"

	"asynccaller/handler/internal/queue"
)

// App is a valid app folder.
type App struct {
	// Dir is the script root: the folder that holds host.json.
	Dir  string
	Host Host
	// Functions are the queue-trigger functions, ordered by name; names and queues are unique.
	Functions []Function
	// Timers are the timer-trigger functions, ordered by name; names are unique among all functions.
	Timers []Timer
}

// Host is the part of host.json that Async Caller uses, with the AzureFunctionsJobHost__ overrides of the environment.
type Host struct {
	// FunctionTimeout ends an invocation; negative means never. The default is 5 minutes, the shortest default of
	// any plan.
	FunctionTimeout time.Duration
	Queues          QueueOptions
	Handler         CustomHandler
}

// QueueOptions is host.json `extensions.queues`, with the host's defaults for what is missing.
type QueueOptions struct {
	// BatchSize is the number of messages that one poll receives, 1 to 32.
	BatchSize int
	// NewBatchThreshold is the number of messages in flight at or below which the next poll starts; -1 when
	// host.json has none (the default is BatchSize/2 times the processors).
	NewBatchThreshold int
	// MaxPollingInterval is the longest pause between polls of an empty queue; 0 when host.json has none.
	MaxPollingInterval time.Duration
	// VisibilityTimeout is the pause before the host repeats a failed message.
	VisibilityTimeout time.Duration
	// MaxDequeueCount is the number of tries after which a message goes to the poison queue.
	MaxDequeueCount int64
	MessageEncoding queue.Encoding
}

// CustomHandler is host.json `customHandler.description`.
type CustomHandler struct {
	// Executable is `defaultExecutablePath` as written, relative to the script root.
	Executable string
	// Arguments are as written; the real host joins them with spaces and does not quote.
	Arguments []string
	// WorkingDirectory is relative to the script root; empty means the script root.
	WorkingDirectory string
}

// DataType is the form in which the host passes a message's content to the handler.
type DataType string

// The data types that a queue trigger supports. Use DataBinary: with DataString a message's body can overwrite its own
// metadata (host-contract A.4).
const (
	DataBinary DataType = "binary"
	DataString DataType = "string"
)

// Function is a queue-trigger function: one folder with a function.json.
type Function struct {
	// Name is the folder's name, and the path of the host's POST.
	Name string
	// Binding is the trigger's binding name: the member of Data that holds the message.
	Binding  string
	Queue    string
	DataType DataType
}

// Timer is a timer-trigger function: one folder with a function.json.
type Timer struct {
	// Name is the folder's name, and the path of the host's POST.
	Name string
	// Binding is the trigger's binding name: the member of Data that holds the timer's state.
	Binding string
	// Schedule is an NCRONTAB expression or an interval, with its %NAME% resolved. Only the host validates it.
	Schedule string
	// ScheduleAsWritten still has its %NAME%. Errors show it, because a setting may be secret.
	ScheduleAsWritten string
	// RunOnStartup makes the host also run it whenever the host starts.
	RunOnStartup bool
}
