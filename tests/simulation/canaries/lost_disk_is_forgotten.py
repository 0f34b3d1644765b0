RULE = "a node that lost its disk is no voter any more"
SEEDS_MAX = 200


def install(replace):
    from raft import elections, serving
    from raft.voters import VoterSet

    def names(key, receiver):
        return receiver is None or receiver.node_id == key.node_id

    replace(VoterSet, "contains", lambda self, key: self.get(key.node_id) is not None)
    replace(elections, "names", names)
    replace(serving, "names", names)
