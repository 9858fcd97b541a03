package olm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opgate/opgate/internal/jsonsize"
)

// schemaDefaults are the defaults in the schema of ClusterServiceVersions, by field and parent field: the API server stores them if the
// manifest omits the field, with the same meaning. "*" is any field.
var schemaDefaults = map[[2]string]string{
	{"ports", "protocol"}:                   `"TCP"`,
	{"webhookdefinitions", "containerPort"}: `443`,
	{"*", "name"}:                           `""`,
	{"grpc", "service"}:                     `""`,
	{"hostAliases", "ip"}:                   `""`,
	{"fileKeyRef", "optional"}:              `false`,
	{"azureDisk", "readOnly"}:               `false`,
	{"azureDisk", "fsType"}:                 `"ext4"`,
	{"iscsi", "iscsiInterface"}:             `"default"`,
	{"rbd", "keyring"}:                      `"/etc/ceph/keyring"`,
	{"rbd", "pool"}:                         `"rbd"`,
	{"rbd", "user"}:                         `"admin"`,
	{"scaleIO", "fsType"}:                   `"xfs"`,
	{"scaleIO", "storageMode"}:              `"ThinProvisioned"`,
}

// defaultedKeys are the fields in schemaDefaults.
var defaultedKeys = func() map[string]bool {
	keys := make(map[string]bool, len(schemaDefaults))
	for field := range schemaDefaults {
		keys[field[1]] = true
	}
	return keys
}()

// ContentsDigest returns a SHA-256 of JSON that ignores what the API server changes when it stores an object: the order of keys, null
// fields, and defaults of the schema. It decodes nothing but strings with escapes. Invalid JSON has the digest of its bytes, and so differs
// from all valid JSON.
func ContentsDigest(raw []byte) [sha256.Size]byte {
	if !json.Valid(raw) {
		return sha256.Sum256(append([]byte("!"), raw...)) // with which no valid JSON begins
	}
	d := digester{raw: raw}
	digest, _ := d.value(nil, nil)
	return digest
}

// digester reads valid JSON. The buffers are stacks: each level uses the part above that of its parent.
type digester struct {
	raw     []byte
	at      int
	members []member
	buffer  []byte
}

// member is a field of an object.
type member struct {
	key   []byte
	value [sha256.Size]byte
}

// next skips white space, commas and colons, and returns the byte that begins the next token.
func (d *digester) next() byte {
	for {
		switch c := d.raw[d.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			d.at++
		default:
			return c
		}
	}
}

// value reads the value of field key in field parent. nothing is set if the API server would have stored the same for an object without the
// field.
func (d *digester) value(parent, key []byte) (digest [sha256.Size]byte, nothing bool) {
	switch d.next() {
	case '{':
		return d.object(key), false
	case '[':
		return d.list(parent, key), false
	case 'n':
		d.at += len("null")
		return sha256.Sum256([]byte("null")), true
	case '"':
		text := d.text()
		nothing = isDefault(parent, key, text, true)
		mark := len(d.buffer)
		d.buffer = append(append(d.buffer, '"'), text...)
		digest = sha256.Sum256(d.buffer[mark:])
		d.buffer = d.buffer[:mark]
		return digest, nothing
	}
	start := d.at // a number, true or false
	for d.at < len(d.raw) && bytes.IndexByte([]byte(" \t\r\n,]}"), d.raw[d.at]) < 0 {
		d.at++
	}
	literal := d.raw[start:d.at]
	return sha256.Sum256(literal), isDefault(parent, key, literal, false)
}

// text reads a string and returns what it stands for.
func (d *digester) text() []byte {
	start := d.at
	d.at = jsonsize.EndOfString(d.raw, start) + 1
	quoted := d.raw[start:d.at]
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return quoted[1 : len(quoted)-1]
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return quoted // not in valid JSON
	}
	return []byte(text)
}

// object reads an object in field parent, or in a list there.
func (d *digester) object(parent []byte) [sha256.Size]byte {
	d.at++
	first := len(d.members)
	for d.next() != '}' {
		key := d.text()
		if value, nothing := d.value(parent, key); !nothing {
			d.members = append(d.members, member{key: key, value: value})
		}
	}
	d.at++
	members := d.members[first:]
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(bytes.Compare(a.key, b.key), bytes.Compare(a.value[:], b.value[:]))
	})
	mark := len(d.buffer)
	d.buffer = append(d.buffer, '{')
	for i := range members {
		d.buffer = binary.AppendUvarint(d.buffer, uint64(len(members[i].key)))
		d.buffer = append(append(d.buffer, members[i].key...), members[i].value[:]...)
	}
	digest := sha256.Sum256(d.buffer[mark:])
	d.buffer, d.members = d.buffer[:mark], d.members[:first]
	return digest
}

// list reads a list in field key of field parent. Order matters, and so do null elements.
func (d *digester) list(parent, key []byte) [sha256.Size]byte {
	d.at++
	mark := len(d.buffer)
	d.buffer = append(d.buffer, '[')
	for d.next() != ']' {
		value, _ := d.value(parent, key)
		d.buffer = append(d.buffer, value[:]...)
	}
	d.at++
	digest := sha256.Sum256(d.buffer[mark:])
	d.buffer = d.buffer[:mark]
	return digest
}

// isDefault reports whether a text, or else a literal, is the default of a field.
func isDefault(parent, key, value []byte, text bool) bool {
	if !defaultedKeys[string(key)] {
		return false
	}
	for _, of := range []string{string(parent), "*"} {
		want := schemaDefaults[[2]string{of, string(key)}]
		if text {
			var quoted bool
			if want, quoted = strings.CutPrefix(want, `"`); !quoted {
				continue
			}
			want = strings.TrimSuffix(want, `"`)
		} else if want == "" {
			continue
		}
		if want == string(value) {
			return true
		}
	}
	return false
}
