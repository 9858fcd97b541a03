package olm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/opgate/opgate/internal/apijson"
)

// schemaDefaults are the defaults in the schema of ClusterServiceVersions, by field and parent field: the API server
// stores them if the manifest omits the field, with the same meaning. "*" is any field.
var schemaDefaults = map[string]map[string]string{
	"protocol":       {"ports": `"TCP"`},
	"containerPort":  {"webhookdefinitions": `443`},
	"name":           {"*": `""`},
	"service":        {"grpc": `""`},
	"ip":             {"hostAliases": `""`},
	"optional":       {"fileKeyRef": `false`},
	"readOnly":       {"azureDisk": `false`},
	"fsType":         {"azureDisk": `"ext4"`, "scaleIO": `"xfs"`},
	"iscsiInterface": {"iscsi": `"default"`},
	"keyring":        {"rbd": `"/etc/ceph/keyring"`},
	"pool":           {"rbd": `"rbd"`},
	"user":           {"rbd": `"admin"`},
	"storageMode":    {"scaleIO": `"ThinProvisioned"`},
}

// ContentsDigest returns a SHA-256 of JSON that ignores what the API server changes when it stores an object: the order
// of keys, null fields, and defaults of the schema. It decodes nothing but strings with escapes. Invalid JSON has the
// digest of its bytes, and so differs from all valid JSON.
func ContentsDigest(raw []byte) [sha256.Size]byte {
	d := digester{Reader: apijson.NewReader(raw)}
	if digest, _, err := d.value(nil, nil); err == nil {
		if _, err = d.ReadToken(); errors.Is(err, io.EOF) {
			return digest
		}
	}
	return sha256.Sum256(append([]byte("!"), raw...)) // with which no valid JSON begins
}

// digester reads JSON. The buffers are stacks: each level uses the part above that of its parent.
type digester struct {
	apijson.Reader
	members []member
	buffer  []byte
}

// member is a field of an object.
type member struct {
	key   []byte
	value [sha256.Size]byte
}

// value reads the value of field key in field parent. nothing is set if the API server would have stored the same for
// an object without the field.
func (d *digester) value(parent, key []byte) (digest [sha256.Size]byte, nothing bool, err error) {
	switch d.PeekKind() {
	case '{':
		digest, err = d.object(key)
	case '[':
		digest, err = d.list(parent, key)
	case '"':
		var text []byte
		text, err = d.Text()
		mark := len(d.buffer)
		d.buffer = append(append(d.buffer, '"'), text...)
		digest, nothing = d.sum(mark), isDefault(parent, key, text, true)
	default:
		var literal []byte
		literal, err = d.Value()
		digest, nothing = sha256.Sum256(literal), string(literal) == "null" || isDefault(parent, key, literal, false)
	}
	return digest, nothing, err
}

// sum returns the digest of what the buffer has from a mark on, and removes it.
func (d *digester) sum(mark int) [sha256.Size]byte {
	digest := sha256.Sum256(d.buffer[mark:])
	d.buffer = d.buffer[:mark]
	return digest
}

// object reads an object in field parent, or in a list there.
func (d *digester) object(parent []byte) ([sha256.Size]byte, error) {
	first := len(d.members)
	err := d.Each(func() error {
		key, err := d.Text()
		if err != nil {
			return err
		}
		value, nothing, err := d.value(parent, key)
		if !nothing {
			d.members = append(d.members, member{key: key, value: value})
		}
		return err
	})
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
	d.members = d.members[:first]
	return d.sum(mark), err
}

// list reads a list in field key of field parent. Order matters, and so do null elements.
func (d *digester) list(parent, key []byte) ([sha256.Size]byte, error) {
	mark := len(d.buffer)
	d.buffer = append(d.buffer, '[')
	err := d.Each(func() error {
		value, _, err := d.value(parent, key)
		d.buffer = append(d.buffer, value[:]...)
		return err
	})
	return d.sum(mark), err
}

// isDefault reports whether a text, or else a literal, is the default of a field.
func isDefault(parent, key, value []byte, text bool) bool {
	defaults := schemaDefaults[string(key)]
	is := func(want string) bool {
		if text {
			return len(want) == len(value)+2 && want[0] == '"' && want[1:len(want)-1] == string(value)
		}
		return want == string(value)
	}
	return defaults != nil && (is(defaults[string(parent)]) || is(defaults["*"]))
}
