package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/tools/release/archive"
)

var files = []archive.File{
	{Name: "kubectl-opgate", Mode: 0o755, Data: []byte("a program")},
	{Name: "LICENSE", Mode: 0o644, Data: []byte("a license")},
}

func TestTarGz(t *testing.T) {
	changed := time.Unix(1_700_000_000, 0)
	packed, err := archive.TarGz(changed, files...)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := archive.TarGz(changed.In(time.FixedZone("elsewhere", 3600)), files...)
	if err != nil || !bytes.Equal(packed, elsewhere) {
		t.Errorf("the archive depends on the time zone (%v)", err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var got []archive.File
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(changed) || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s is of %s by %d %q", header.Name, header.ModTime, header.Uid, header.Uname)
		}
		got = append(got, archive.File{Name: header.Name, Mode: header.FileInfo().Mode(), Data: data})
	}
	if diff := cmp.Diff(files, got); diff != "" {
		t.Errorf("unpacked files differ (-want +got):\n%s", diff)
	}
}

func TestZip(t *testing.T) {
	packed, err := archive.Zip(time.Unix(0, 0), files...)
	if err != nil {
		t.Fatal(err)
	}
	again, err := archive.Zip(time.Unix(0, 0).UTC(), files...)
	if err != nil || !bytes.Equal(packed, again) {
		t.Errorf("the archive depends on the time zone (%v)", err)
	}
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	var got []archive.File
	for _, entry := range r.File {
		f, err := entry.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if year := entry.Modified.Year(); year != 1980 {
			t.Errorf("%s is of %d", entry.Name, year)
		}
		got = append(got, archive.File{Name: entry.Name, Mode: entry.Mode(), Data: data})
	}
	if diff := cmp.Diff(files, got); diff != "" {
		t.Errorf("unpacked files differ (-want +got):\n%s", diff)
	}
}
