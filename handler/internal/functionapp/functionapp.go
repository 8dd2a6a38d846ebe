// Package functionapp reads an app folder the way the Functions host does: host.json and the
// function.json files one level down. The handler and the local host share it, so that which function
// serves which queue or runs when, and how messages are encoded, is configured once.
package functionapp

import (
	"time"

	"asynccaller/handler/internal/queue"
)

// App is an app folder that was read and found valid.
type App struct {
	// Dir is the script root: the folder that holds host.json.
	Dir  string
	Host Host
	// Functions are the queue-trigger functions, ordered by name; names and queues are unique.
	Functions []Function
	// Timers are the timer-trigger functions, ordered by name; no function has the name of another, of
	// whichever kind.
	Timers []Timer
}

// Host is what we need of host.json, after the AzureFunctionsJobHost__ overrides of the environment.
type Host struct {
	// FunctionTimeout ends an invocation; negative means never. It is 5 minutes when host.json has none,
	// the shortest default of any plan.
	FunctionTimeout time.Duration
	Queues          QueueOptions
	Handler         CustomHandler
}

// QueueOptions is host.json `extensions.queues`, with the host's defaults where it is silent.
type QueueOptions struct {
	// BatchSize is how many messages one poll takes, 1 to 32.
	BatchSize int
	// NewBatchThreshold is the number of messages in flight at or below which the next poll starts;
	// -1 when host.json has none (the default is BatchSize/2 times the processors).
	NewBatchThreshold int
	// MaxPollingInterval is the longest wait between polls of an empty queue; 0 when host.json has none.
	MaxPollingInterval time.Duration
	// VisibilityTimeout is the wait before a failed message is tried again.
	VisibilityTimeout time.Duration
	// MaxDequeueCount is how often a message is tried before it goes to the poison queue.
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

// DataType is how the host hands over a message's content.
type DataType string

// The data types that a queue trigger works with. DataBinary is what we ship: with DataString a
// message's body can overwrite its own metadata (host-contract A.4).
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
