package limit

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// seal authenticates what messages were promised, by a secret that the app keeps in a row of its table: a sender who
// could invent a promise would go before the others, and exceed the limit.
type seal struct {
	table storage.Table
	app   string

	// reading has a value while the secret is read; secret and retryAt belong to the one who has put it there.
	reading chan struct{}
	secret  []byte
	// retryAt is when a table that did not answer is asked again.
	retryAt time.Time
}

// secretPartition is the PartitionKey of the row that has the secret.
const secretPartition = "secret"

// secretRow is the row that has the secret of an app.
type secretRow struct {
	storage.Key

	App     string `row:"app"`
	Content []byte `row:"content"`
}

// sealBytes is the length of a seal before its encoding.
const sealBytes = 16

// key returns the secret. The first instance of the app makes it.
func (s *seal) key(ctx context.Context) ([]byte, error) {
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	if s.secret != nil {
		return s.secret, nil
	}
	if time.Now().Before(s.retryAt) {
		return nil, errors.New("the table is away")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), updateTime)
	defer cancel()
	key := storage.Key{Partition: secretPartition, ID: fmt.Sprintf("%x", sha256.Sum256([]byte(s.app)))}
	row := secretRow{key, s.app, make([]byte, 32)}
	_, _ = rand.Read(row.Content) // it never fails
	for {
		stored, _, err := rows.Get[secretRow](ctx, s.table, key.Partition, key.ID)
		if err == nil && len(stored.Content) >= len(row.Content) {
			s.secret = stored.Content
			return s.secret, nil
		}
		if err == nil {
			row.Version = stored.Version
			_, err = rows.Replace(ctx, s.table, row)
		}
		if err != nil {
			s.retryAt = time.Now().Add(awayTime)
			return nil, err
		}
	}
}

// promise is what a message was promised when its call was refused.
type promise struct {
	// At is the time that it has reserved, and ticket its place in the line for a permit; zero if it has none.
	at     time.Time
	ticket int64
	// back is when it becomes visible again.
	back time.Time
}

// text returns the promise as a message carries it, with a seal. Without the secret, it is empty: the message asks
// anew.
func (s *seal) text(ctx context.Context, q Request, p promise) string {
	secret, err := s.key(ctx)
	if err != nil {
		return ""
	}
	at := int64(0)
	if !p.at.IsZero() {
		at = p.at.UnixMilli()
	}
	values := fmt.Sprintf("%d.%d.%d", at, p.ticket, p.back.UnixMilli())
	return values + "." + base64.RawURLEncoding.EncodeToString(sum(secret, q, values))
}

// open returns what a message was promised; nothing if this app has not promised it to this message, for this target
// and its present limits.
func (s *seal) open(ctx context.Context, q Request) (p promise) {
	i := strings.LastIndexByte(q.Reserved, '.')
	if i < 0 {
		return p
	}
	values := q.Reserved[:i]
	got, err := base64.RawURLEncoding.DecodeString(q.Reserved[i+1:])
	if err != nil {
		return p
	}
	secret, err := s.key(ctx)
	if err != nil || !hmac.Equal(got, sum(secret, q, values)) {
		return p
	}
	var at, back int64
	_, err = fmt.Sscanf(values, "%d.%d.%d", &at, &p.ticket, &back)
	if err != nil {
		return promise{}
	}
	if at != 0 {
		p.at = time.UnixMilli(at)
	}
	p.back = time.UnixMilli(back)
	return p
}

func sum(secret []byte, q Request, values string) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "%q %q %d %q %s", q.Profile.Scope, q.Profile.RateText, q.Profile.Concurrency, q.RequestID,
		values) // a hash never fails
	return mac.Sum(nil)[:sealBytes]
}
