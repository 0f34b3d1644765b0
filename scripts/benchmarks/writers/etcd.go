package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const dialTimeout = 5 * time.Second

// etcdTarget puts through etcd's own client, all of them connected to the leader.
type etcdTarget struct {
	clients []*clientv3.Client
}

func connectEtcd(addresses []string, connections int) (Target, error) {
	leader, err := etcdLeader(addresses)
	if err != nil {
		return nil, err
	}
	target := &etcdTarget{}
	for range connections {
		client, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{leader},
			DialTimeout: dialTimeout,
		})
		if err != nil {
			return nil, err
		}
		target.clients = append(target.clients, client)
	}
	return target, nil
}

func etcdLeader(addresses []string) (string, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addresses, DialTimeout: dialTimeout})
	if err != nil {
		return "", err
	}
	defer client.Close()
	for _, address := range addresses {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		status, err := client.Status(ctx, address)
		cancel()
		if err == nil && status.Header.MemberId == status.Leader {
			return address, nil
		}
	}
	return "", fmt.Errorf("none of %v is etcd's leader", addresses)
}

func (target *etcdTarget) Change(writer int, sequence int64) error {
	client := target.clients[writer%len(target.clients)]
	key := fmt.Sprintf("config-%04d/retention.ms", writer)
	_, err := client.Put(context.Background(), key, strconv.FormatInt(sequence, 10))
	return err
}
