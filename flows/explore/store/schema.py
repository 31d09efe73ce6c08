"""The tables of a result store, one script per version of the schema."""

APPLICATION = 0x44565453
"""SQLite's ``application_id`` of a store: "DVTS"."""

SCRIPTS = (
    (
        """
        CREATE TABLE networks (           -- a network's file with the sizes of its inputs
            id INTEGER PRIMARY KEY,
            hash TEXT NOT NULL UNIQUE,    -- SHA-256 of its bytes
            name TEXT NOT NULL,
            source TEXT NOT NULL          -- file or zoo: name
        )
        """,
        """
        CREATE TABLE configurations (
            id INTEGER PRIMARY KEY,
            hash TEXT NOT NULL,           -- of the hardware, 16 hexadecimal digits
            memory TEXT NOT NULL,         -- read_latency/write_latency/beat_cycles
            parameters TEXT NOT NULL,     -- JSON: all of them
            UNIQUE (hash, memory)
        )
        """,
        """
        CREATE TABLE results (
            id INTEGER PRIMARY KEY,
            network INTEGER NOT NULL REFERENCES networks,
            configuration INTEGER NOT NULL REFERENCES configurations,
            options TEXT NOT NULL,        -- JSON: what the compiler was told
            version TEXT NOT NULL,        -- of the compiler
            cost TEXT,                    -- JSON: cycles, macs, ...; NULL if it failed
            error TEXT NOT NULL,          -- why it failed
            lost INTEGER NOT NULL,        -- 1: it failed for want of a worker or memory, and may succeed another time
            seconds REAL NOT NULL,        -- CPU time
            UNIQUE (network, configuration, options, version)
        )
        """,
        """
        CREATE TABLE sweeps (
            id INTEGER PRIMARY KEY,
            space TEXT NOT NULL,          -- JSON
            networks TEXT NOT NULL,       -- JSON: ids, in the order of the space's workloads
            options TEXT NOT NULL,
            version TEXT NOT NULL,
            total INTEGER NOT NULL,       -- points that the search will look at, 0: unknown
            started TEXT NOT NULL,        -- UTC
            finished TEXT                 -- UTC; NULL while it runs, or after it was stopped
        )
        """,
        """
        CREATE TABLE visits (             -- the points that a sweep looked at, in this order
            position INTEGER PRIMARY KEY,
            sweep INTEGER NOT NULL REFERENCES sweeps,
            number INTEGER NOT NULL,      -- of the point within the space
            configuration INTEGER REFERENCES configurations, -- NULL: the combination breaks a rule
            UNIQUE (sweep, number)
        )
        """,
        """
        CREATE TABLE confirmations (      -- what the RTL said
            network INTEGER NOT NULL REFERENCES networks,
            configuration INTEGER NOT NULL REFERENCES configurations,
            options TEXT NOT NULL,
            version TEXT NOT NULL,
            equal INTEGER NOT NULL,       -- 1: every byte and every cycle
            detail TEXT NOT NULL,         -- the first difference
            hardware TEXT NOT NULL,       -- hash of the sources of the RTL
            made TEXT NOT NULL,           -- UTC
            PRIMARY KEY (network, configuration, options, version)
        )
        """,
        """
        CREATE VIEW costs AS              -- results as columns
            SELECT n.name AS network, c.hash, c.memory, c.parameters, r.options, r.version,
                json_extract(r.cost, '$.cycles') AS cycles, json_extract(r.cost, '$.macs') AS macs,
                json_extract(r.cost, '$.bound_cycles') AS bound_cycles,
                json_extract(r.cost, '$.read_bytes') AS read_bytes,
                json_extract(r.cost, '$.write_bytes') AS write_bytes,
                r.error, r.seconds
            FROM results r JOIN networks n ON n.id = r.network JOIN configurations c ON c.id = r.configuration
        """,
    ),
    (
        """
        CREATE TABLE builds (             -- what was placed and routed for a board, with the best seed
            id INTEGER PRIMARY KEY,
            configuration INTEGER NOT NULL REFERENCES configurations,
            board TEXT NOT NULL,
            part TEXT NOT NULL,
            memory TEXT NOT NULL,         -- of the board design
            clock INTEGER NOT NULL,       -- Hz
            lut INTEGER NOT NULL,
            ff INTEGER NOT NULL,
            dsp INTEGER NOT NULL,
            bram INTEGER NOT NULL,
            spram INTEGER NOT NULL,
            fmax REAL NOT NULL,           -- MHz of the slowest clock
            met INTEGER NOT NULL,         -- 1: as fast as the clock
            seed INTEGER NOT NULL,        -- the best
            seeds TEXT NOT NULL,          -- JSON: MHz by seed, 0 where it failed
            path TEXT NOT NULL,           -- JSON: the critical path
            design TEXT NOT NULL,         -- hash of design, constraints and options
            tools TEXT NOT NULL,          -- JSON: versions by name
            made TEXT NOT NULL,           -- UTC
            UNIQUE (configuration, board, design, tools)
        )
        """,
    ),
)
"""The statements of script k make schema k + 1 of schema k. SQLite's ``user_version`` says which one a file has."""
