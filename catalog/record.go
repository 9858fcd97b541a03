package catalog

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/olm"
)

// RecordsName is the name of the ConfigMap, in Opgate's own namespace, with a Record for each catalog whose jumps are
// held.
const RecordsName = kept.Catalogs

// maxHeadsSize bounds the JSON of the heads in a record, in bytes.
const maxHeadsSize = 16 << 20

// maxRecord bounds one record, in bytes. The API server accepts a ConfigMap of 1 MiB.
const maxRecord = 256 << 10

// Record is what is remembered of a catalog, so that a restart forgets no jump.
type Record struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	History
	// Packed are the heads of the newest image: JSON, gzip, base64.
	Packed string `json:"heads,omitempty"`
}

// RecordKey returns the key of the record of a catalog in the ConfigMap; "" for a catalog whose names are too long for
// one.
func RecordKey(of olm.Catalog) string {
	key := of.Namespace + "." + of.Name // a namespace has no dot
	if of.Namespace == "" || of.Name == "" || len(key) > MaxName {
		return ""
	}
	return key
}

// DecodeRecord reads the record of a catalog from its text in the ConfigMap.
func DecodeRecord(text string) (*Record, error) {
	if len(text) > maxRecord {
		return nil, fmt.Errorf("the record of a catalog has %d bytes, more than %d", len(text), maxRecord)
	}
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("read the record of a catalog: %w", err)
	}
	if r.Namespace == "" || r.Name == "" || len(r.Polls) > maxPolls {
		return nil, fmt.Errorf("the record of a catalog names none, or has more than %d polls", maxPolls)
	}
	return &r, nil
}

// Catalog returns the catalog that the record is of.
func (r *Record) Catalog() olm.Catalog { return olm.Catalog{Namespace: r.Namespace, Name: r.Name} }

// Heads returns the heads of the newest image.
func (r *Record) Heads() (Heads, error) {
	packed, err := base64.StdEncoding.DecodeString(r.Packed)
	if err != nil {
		return nil, fmt.Errorf("read the heads of a catalog: %w", err)
	}
	unpacker, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read the heads of a catalog: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(unpacker, maxHeadsSize+1))
	if err != nil {
		return nil, fmt.Errorf("read the heads of a catalog: %w", err)
	}
	if len(text) > maxHeadsSize {
		return nil, fmt.Errorf("the heads of a catalog have more than %d bytes", maxHeadsSize)
	}
	heads := Heads{}
	if err := json.Unmarshal(text, &heads); err != nil {
		return nil, fmt.Errorf("read the heads of a catalog: %w", err)
	}
	return heads, nil
}

// Offered is what a catalog offers at a time: the newest versions of all packages, and the names of all versions of
// those for which it is recorded when each was first seen.
type Offered struct {
	Heads Heads
	Names map[string][]string
	At    time.Time
}

// Next returns the text of the record after an image is known to offer something; changed is false if it states the
// same. Without a record before, nil, the image is the first, which changes nothing.
func (r *Record) Next(
	of olm.Catalog, image string, offered Offered, on Platform,
) (text string, changed bool, err error) {
	heads := offered.Heads
	poll := Poll{Packages: len(heads)}
	var before *History
	if r != nil {
		last, err := r.Heads()
		if err != nil {
			return "", false, err
		}
		poll, before = Compare(last, heads, on), &r.History
		poll.From = r.Newest()
		seen, added := before.Seen.With(offered.Names, offered.At)
		same := poll.From == image && poll.Changed == 0
		if same && !added {
			return "", false, nil
		}
		if before = (&History{Polls: before.Polls, Seen: seen}); same {
			return r.encode(of, *before, r.Packed)
		}
	} else {
		before = &History{}
		before.Seen, _ = before.Seen.With(offered.Names, offered.At)
	}
	poll.Image = image
	packed, err := pack(heads)
	if err != nil {
		return "", false, err
	}
	return r.encode(of, *before.With(poll), packed)
}

func (*Record) encode(of olm.Catalog, history History, packed string) (text string, changed bool, err error) {
	next, err := json.Marshal(Record{Namespace: of.Namespace, Name: of.Name, History: history, Packed: packed})
	if err == nil && len(next) > maxRecord {
		err = fmt.Errorf("the record of catalog %s/%s has %d bytes, more than %d", of.Namespace, of.Name, len(next),
			maxRecord)
	}
	return string(next), true, err
}

func pack(heads Heads) (string, error) {
	text, err := json.Marshal(heads)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write(text); err != nil {
		return "", err
	}
	if err := packer.Close(); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}
