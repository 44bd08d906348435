package main

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The layout is told in record.py.
const (
	latencies = 4096
	ids       = 524_288
	stampsAt  = 4096
	loadsAt   = stampsAt + 8*latencies
	endedAt   = loadsAt + 8*latencies
	startedAt = endedAt + ids
	size      = startedAt + ids
)

var kinds = map[string]int{"noop": 0, "burn": 1, "nap": 2, "stamp": 3, "load": 4, "once": 5}

// record is the memory-mapped file of this process.
type record struct {
	mutex sync.Mutex
	bytes []byte
}

func openRecord(directory string) *record {
	file, err := os.OpenFile(filepath.Join(directory, strconv.Itoa(os.Getpid())+".record"), os.O_RDWR|os.O_CREATE, 0o644)
	must(err)
	must(file.Truncate(size))
	mapped, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(err)
	must(file.Close())
	return &record{bytes: mapped}
}

func (r *record) started(id int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.bytes[startedAt+id]++
}

func (r *record) ended(kind string, id int, begun, sent float64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	place := 24 * kinds[kind]
	count := int(*r.float(place))
	if sent > 0 {
		at := loadsAt
		if kind == "stamp" {
			at = stampsAt
		}
		*r.float(at + 8*(count%latencies)) = begun - sent
	}
	if count == 0 {
		*r.float(place + 8) = begun
	}
	*r.float(place + 16) = monotonic()
	if r.bytes[endedAt+id] < math.MaxUint8 {
		r.bytes[endedAt+id]++
	}
	*r.float(place) = float64(count + 1)
}

func (r *record) float(offset int) *float64 {
	return (*float64)(unsafe.Pointer(&r.bytes[offset]))
}

func monotonic() float64 { return clock(unix.CLOCK_MONOTONIC) }

func threadTime() float64 { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(which int32) float64 {
	var now unix.Timespec
	must(unix.ClockGettime(which, &now))
	return float64(now.Sec) + float64(now.Nsec)/1e9
}
