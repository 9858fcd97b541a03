package olm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
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

// ContentsDigest returns a SHA-256 of JSON that ignores what the API server changes when it stores an object: the order of keys, null
// fields, and defaults of the schema. It reads token by token, so that its memory is bounded by the deepest path. Invalid JSON has the
// digest of its bytes, and so differs from all valid JSON.
func ContentsDigest(raw []byte) [sha256.Size]byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	digest, _, err := digestValue(d, "", "")
	if err != nil {
		return sha256.Sum256(raw)
	}
	return digest
}

// digestValue reads the value of field key in field parent. Nothing is set if the API server would have stored the same for an object
// without the field.
func digestValue(d *json.Decoder, parent, key string) (digest [sha256.Size]byte, nothing bool, err error) {
	token, err := d.Token()
	if err != nil {
		return digest, false, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			digest, err = digestObject(d, key)
		} else {
			digest, err = digestList(d, parent, key)
		}
		return digest, false, err
	case nil:
		return sha256.Sum256([]byte("null")), true, nil
	}
	text, err := json.Marshal(token)
	if err != nil {
		return digest, false, fmt.Errorf("encode %T: %w", token, err)
	}
	nothing = schemaDefaults[[2]string{parent, key}] == string(text) || schemaDefaults[[2]string{"*", key}] == string(text)
	return sha256.Sum256(text), nothing, nil
}

// digestObject reads the rest of an object in field parent, or in a list there.
func digestObject(d *json.Decoder, parent string) (digest [sha256.Size]byte, err error) {
	var members [][2 * sha256.Size]byte
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return digest, err
		}
		key, ok := token.(string)
		if !ok {
			return digest, fmt.Errorf("%v is not a key", token)
		}
		value, nothing, err := digestValue(d, parent, key)
		if err != nil {
			return digest, err
		}
		if nothing {
			continue
		}
		name := sha256.Sum256([]byte(key))
		members = append(members, [2 * sha256.Size]byte(append(name[:], value[:]...)))
	}
	if _, err := d.Token(); err != nil {
		return digest, err
	}
	slices.SortFunc(members, func(a, b [2 * sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	h := sha256.New()
	h.Write([]byte("{"))
	for i := range members {
		h.Write(members[i][:])
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// digestList reads the rest of a list in field key of field parent. Order matters, and so do null elements.
func digestList(d *json.Decoder, parent, key string) (digest [sha256.Size]byte, err error) {
	h := sha256.New()
	h.Write([]byte("["))
	for d.More() {
		value, _, err := digestValue(d, parent, key)
		if err != nil {
			return digest, err
		}
		h.Write(value[:])
	}
	if _, err := d.Token(); err != nil {
		return digest, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
