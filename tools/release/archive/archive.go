// Package archive packs files so that the same files make the same archive.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"time"
)

// File is a file to pack.
type File struct {
	Name string
	Mode fs.FileMode
	Data []byte
}

// TarGz packs files in their order, changed at one time and owned by root. The result depends on nothing else.
func TarGz(changed time.Time, files ...File) ([]byte, error) {
	var b bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(compressed)
	for _, file := range files {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     file.Name,
			Mode:     int64(file.Mode.Perm()),
			Size:     int64(len(file.Data)),
			ModTime:  changed.UTC().Truncate(time.Second),
			Format:   tar.FormatUSTAR,
		})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(file.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Zip is TarGz for Windows. The format has no times before 1980: earlier ones become that.
func Zip(changed time.Time, files ...File) ([]byte, error) {
	changed = changed.UTC().Truncate(time.Second)
	if first := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC); changed.Before(first) {
		changed = first
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, file := range files {
		header := &zip.FileHeader{Name: file.Name, Method: zip.Deflate, Modified: changed}
		header.SetMode(file.Mode)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(file.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
