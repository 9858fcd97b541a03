package snapshot

import (
	"encoding/json"
	"time"

	"github.com/opgate/opgate/rules/facts"
)

var reader Reader

// read decodes an object from JSON.
func read(kind *Kind, raw string) *Object { return reader.Read(kind, []byte(raw)) }

// encode returns an object of a Go value.
func encode(kind *Kind, value any) *Object {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return reader.Read(kind, raw)
}

// snapshotOf returns a snapshot of objects.
func snapshotOf(objects ...*Object) *Snapshot {
	var b Builder
	b.Put(time.Time{}, objects...)
	return b.SetCluster(time.Time{}, facts.Cluster{Version: "1.36.3"})
}
