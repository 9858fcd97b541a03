package catalog

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/kept"
	"github.com/opgate/opgate/internal/text"
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
func (r *Record) Heads() (heads Heads, err error) {
	unpacker, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(r.Packed)))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(unpacker, maxHeadsSize+1))
	}
	if err == nil && len(text) > maxHeadsSize {
		err = fmt.Errorf("they have more than %d bytes", maxHeadsSize)
	}
	if err == nil {
		err = json.Unmarshal(text, &heads)
	}
	if err != nil {
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
	_, err = packer.Write(text)
	if err := errors.Join(err, packer.Close()); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// maxPolls bounds the polls of a History.
const maxPolls = 32

// History is what the images of a catalog changed, one after the other. It is immutable.
type History struct {
	// Polls are oldest first. The first has no image before it, unless older ones were merged into it.
	Polls []Poll `json:"polls"`
	// Seen is when versions were first offered, for the packages that policies ask about.
	Seen Seen `json:"seen,omitempty"`
}

// With returns the history with one more poll. If there are too many, the two oldest become one, so that no jump is
// forgotten.
func (h *History) With(p Poll) *History {
	next := &History{}
	if h != nil {
		next.Polls, next.Seen = slices.Clone(h.Polls), h.Seen
	}
	if next.Polls = append(next.Polls, p); len(next.Polls) > maxPolls {
		merged := merge(next.Polls[0], next.Polls[1])
		next.Polls = append([]Poll{merged}, next.Polls[2:]...)
	}
	return next
}

// merge returns a poll that jumps if one of two does.
func merge(older, newer Poll) Poll {
	most := newer
	if older.Changed > newer.Changed {
		most = older
	}
	most.Image, most.From = newer.Image, older.From
	most.Backwards, most.Foreign = older.Backwards+newer.Backwards, older.Foreign+newer.Foreign
	most.BackwardsExamples = firstOf(older.BackwardsExamples, newer.BackwardsExamples)
	most.ForeignExamples = firstOf(older.ForeignExamples, newer.ForeignExamples)
	return most
}

func firstOf(a, b []string) []string {
	all := slices.Concat(a, b)
	return all[:min(len(all), maxExamples)]
}

// Newest returns the digest of the last image that was compared; "" if none was.
func (h *History) Newest() string {
	if h == nil || len(h.Polls) == 0 {
		return ""
	}
	return h.Polls[len(h.Polls)-1].Image
}

// Jump returns, in words, the last jump since the last accepted image; "" if there is none.
func (h *History) Jump(maxChanged int, accepted []string) string {
	if h == nil {
		return ""
	}
	for _, p := range slices.Backward(h.Polls) {
		if slices.Contains(accepted, p.Image) {
			return ""
		}
		if jump := p.jump(maxChanged); jump != "" {
			return jump
		}
	}
	return ""
}

// jump returns why a poll is a jump, or "".
func (p *Poll) jump(maxChanged int) string {
	var parts []string
	if p.Backwards > 0 {
		parts = append(parts, "it moved "+text.Count(p.Backwards, "channel")+" backwards ("+
			examples(p.BackwardsExamples, p.Backwards)+")")
	}
	if p.Foreign > 0 {
		parts = append(parts, "it offers "+text.Count(p.Foreign, "version")+" for another platform ("+
			examples(p.ForeignExamples, p.Foreign)+")")
	}
	if p.Changed > maxChanged {
		parts = append(parts, fmt.Sprintf("it changed %d of %d packages, more than %d (%s)", p.Changed, p.Packages,
			maxChanged,
			examples(p.ChangedExamples, p.Changed)))
	}
	return strings.Join(parts, " and ")
}

// examples joins examples, and states how many more there are.
func examples(list []string, of int) string {
	text := strings.Join(list, "; ")
	if more := of - len(list); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
