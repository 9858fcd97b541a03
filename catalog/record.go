package catalog

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/opgate/opgate/internal/fair"
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
// those for which it is recorded when each was first seen, with for whom that is.
type Offered struct {
	Heads Heads
	Names map[string][]string
	For   map[string]fair.Origin
	At    time.Time
}

// Next is the text of a record after an image is known to offer something.
type Next struct {
	Text string
	// Changed is false if the text states the same as before.
	Changed bool
	// Left is for whom versions have no room.
	Left []fair.Origin
}

// Next returns the next record. Without a record before, nil, the image is the first, which changes nothing.
func (r *Record) Next(of olm.Catalog, image string, offered Offered, on Platform) (Next, error) {
	next, same := Record{Namespace: of.Namespace, Name: of.Name}, false
	poll := Poll{Packages: len(offered.Heads)}
	if r != nil {
		last, err := r.Heads()
		if err != nil {
			return Next{}, err
		}
		next.History, next.Packed = r.History, r.Packed
		poll = Compare(last, offered.Heads, on)
		poll.From = r.Newest()
		same = poll.From == image && poll.Changed == 0
	}
	if poll.Image = image; !same {
		packed, err := pack(offered.Heads)
		if err != nil {
			return Next{}, err
		}
		next.History, next.Packed = *next.History.With(poll), packed
	}
	before := next.Seen
	next.Seen = nil
	text, err := json.Marshal(next)
	room := maxRecord - len(text) - len(`,"seen":{}`)
	if err == nil && room < 0 {
		err = fmt.Errorf("the record of catalog %s/%s has %d bytes, more than %d", of.Namespace, of.Name, len(text), maxRecord)
	}
	if err != nil {
		return Next{}, err
	}
	seen, left := before.With(offered, room)
	if next.Seen = seen; same && seen.equal(before) {
		return Next{Left: left}, nil
	}
	text, err = json.Marshal(next)
	return Next{Text: string(text), Changed: true, Left: left}, err
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
