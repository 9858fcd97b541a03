package certs

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/internal/signal"
	"github.com/opgate/opgate/internal/watched"
)

const (
	// signingSecret is the Secret in which the replicas share the key of marks, signingField its key.
	signingSecret = "opgate-marks"
	signingField  = "key"
	// signingSize is the size of the key in bytes, signingRetry the delay after a failed attempt to store it.
	signingSize  = 32
	signingRetry = 5 * time.Second
)

// SigningKey is the key with which the marks of Policies are signed: a marked Policy was verified by a replica of
// Opgate. The replicas share it in a Secret, which the first of them creates. If that is deleted, it is created again
// with the same key.
type SigningKey struct {
	secret    *watched.Object
	changed   chan struct{}
	key       atomic.Pointer[[]byte]
	log       logr.Logger
	namespace string
}

// NewSigningKey returns a SigningKey in a namespace. Start reads it.
func NewSigningKey(client dynamic.Interface, namespace string, log logr.Logger) (*SigningKey, error) {
	k := &SigningKey{namespace: namespace, changed: make(chan struct{}, 1), log: log}
	var err error
	k.secret, err = watched.New(client, secretsResource, namespace, signingSecret,
		func() { signal.Put(k.changed) }, log)
	return k, err
}

// Key returns the key, nil while it is not known. It is shared and must not be modified.
func (k *SigningKey) Key() []byte {
	if key := k.key.Load(); key != nil {
		return *key
	}
	return nil
}

// Start keeps the key current until the context is cancelled.
func (k *SigningKey) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { k.secret.Informer.RunWithContext(ctx) })
	select {
	case <-ctx.Done():
		return nil
	case <-k.secret.Informer.HasSyncedChecker().Done():
	}
	for {
		var retry <-chan time.Time
		if err := k.refresh(ctx); err != nil && ctx.Err() == nil {
			k.log.Error(err, "key of marks not available, retrying", "secret", signingSecret)
			retry = time.After(signingRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-retry:
		}
	}
}

// refresh reads the key from the Secret. If that does not exist, it is created with the known key, or a new one; if
// another replica was faster, the watch delivers its key.
func (k *SigningKey) refresh(ctx context.Context) error {
	secret, err := secretOf(k.secret)
	if err != nil {
		return err
	}
	if secret == nil {
		key := k.Key()
		if key == nil {
			key = make([]byte, signingSize)
			_, _ = rand.Read(key) // which never fails
		}
		secret = newSecret(k.namespace, signingSecret)
		secret.Data = map[string][]byte{signingField: key}
		_, err = put(ctx, k.secret, secret)
		return err
	}
	key := secret.Data[signingField]
	if len(key) < signingSize {
		return errors.New("the Secret has no key of 32 bytes: delete it, and it is created again")
	}
	if !bytes.Equal(key, k.Key()) {
		k.key.Store(&key)
		k.log.Info("key of marks read", "secret", signingSecret)
	}
	return nil
}
