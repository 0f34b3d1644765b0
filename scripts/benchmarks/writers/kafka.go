package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

const (
	incrementalAlterConfigs = 44
	topicResource           = 2
	set                     = 0
)

// kafkaTarget sends IncrementalAlterConfigs version 1 over a few connections, or one per writer.
type kafkaTarget struct {
	connections []*kafkaConnection
}

func connectKafka(address string, connections int) (Target, error) {
	target := &kafkaTarget{}
	for range connections {
		socket, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		connection := &kafkaConnection{
			socket:  socket,
			writing: make(chan []byte, 1024),
			waiting: make(chan chan error, 4096),
		}
		go connection.write()
		go connection.read()
		target.connections = append(target.connections, connection)
	}
	return target, nil
}

func (target *kafkaTarget) Change(writer int, sequence int64) error {
	topic := fmt.Sprintf("config-%04d", writer)
	connection := target.connections[writer%len(target.connections)]
	return connection.ask(func(correlation int32) []byte {
		return alterConfigs(correlation, topic, strconv.FormatInt(sequence, 10))
	})
}

// kafkaConnection pipelines: answers come in the order of the requests. What several writers have
// to send leaves in one write where it is there at once, as gRPC does it too.
type kafkaConnection struct {
	socket  net.Conn
	lock    sync.Mutex
	next    int32
	writing chan []byte
	waiting chan chan error
}

func (connection *kafkaConnection) ask(request func(int32) []byte) error {
	answer := make(chan error, 1)
	connection.lock.Lock()
	connection.next++
	frame := request(connection.next)
	connection.waiting <- answer
	connection.writing <- frame
	connection.lock.Unlock()
	return <-answer
}

func (connection *kafkaConnection) write() {
	out := bufio.NewWriterSize(connection.socket, 64<<10)
	for frame := range connection.writing {
		out.Write(frame)
		if len(connection.writing) == 0 && out.Flush() != nil {
			return // the reading side tells those who wait
		}
	}
}

func (connection *kafkaConnection) read() {
	in := bufio.NewReaderSize(connection.socket, 64<<10)
	var size [4]byte
	for {
		_, err := io.ReadFull(in, size[:])
		var body []byte
		if err == nil {
			body = make([]byte, binary.BigEndian.Uint32(size[:]))
			_, err = io.ReadFull(in, body)
		}
		if err != nil {
			for answer := range connection.waiting {
				answer <- fmt.Errorf("the connection ended: %w", err)
			}
			return
		}
		(<-connection.waiting) <- outcome(body)
	}
}

// alterConfigs frames a request that sets retention.ms of one topic.
func alterConfigs(correlation int32, topic, value string) []byte {
	frame := make([]byte, 4, 96)
	frame = binary.BigEndian.AppendUint16(frame, incrementalAlterConfigs)
	frame = binary.BigEndian.AppendUint16(frame, 1)
	frame = binary.BigEndian.AppendUint32(frame, uint32(correlation))
	frame = binary.BigEndian.AppendUint16(frame, 7)
	frame = append(frame, "writers"...)
	frame = append(frame, 0)                // no tagged fields in the header
	frame = append(frame, 2, topicResource) // one resource
	frame = compactString(frame, topic)
	frame = append(frame, 2) // one config
	frame = compactString(frame, "retention.ms")
	frame = append(frame, set)
	frame = compactString(frame, value)
	frame = append(frame, 0, 0, 0, 0) // tags of config and resource, not only validated, tags
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

func compactString(frame []byte, text string) []byte {
	return append(append(frame, byte(len(text)+1)), text...)
}

// outcome reads the error of the one resource: correlation id, tags, throttle time, count, error.
func outcome(body []byte) error {
	if len(body) < 12 || body[9] != 2 {
		return fmt.Errorf("an answer that makes no sense: % x", body)
	}
	if code := binary.BigEndian.Uint16(body[10:12]); code != 0 {
		return fmt.Errorf("the change was refused with error code %d", code)
	}
	return nil
}
