BEGIN TRANSACTION;
CREATE TABLE engine_decision_gate_refs (
    number  INTEGER PRIMARY KEY,
    gate    INTEGER NOT NULL,
    channel TEXT NOT NULL,
    message TEXT NOT NULL,
    UNIQUE (gate, channel, message)
) STRICT;
CREATE TABLE engine_decision_gates (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    item    TEXT NOT NULL,
    pending INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
INSERT INTO "engine_decision_gates" VALUES(1,'gate:01a1e166-131a-71d5-a498-8b9abd648106:01a1e166-13a3-7499-b128-4bc5a9a3bd8a:01a1e166-13a7-740b-be13-507c4d5c1368:call-0-0:c39ac2d21a580226acfa33ef21197746',2,'01a1e166-13a7-740b-be13-507c4d5c1368',1,'{"id":"gate:01a1e166-131a-71d5-a498-8b9abd648106:01a1e166-13a3-7499-b128-4bc5a9a3bd8a:01a1e166-13a7-740b-be13-507c4d5c1368:call-0-0:c39ac2d21a580226acfa33ef21197746","kind":"approval","title":"run: echo ran >> out.txt","body":"echo ran >> out.txt","actions":[{"id":"approve","label":"Approve"},{"id":"deny","label":"Deny"}],"status":{"type":"pending"},"origin":{"session":"01a1e166-131a-71d5-a498-8b9abd648106","thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","item":"01a1e166-13a7-740b-be13-507c4d5c1368","call":"call-0-0","tool":"bash","resume_key":"call-0-0:c39ac2d21a580226acfa33ef21197746"},"expires_at":null,"created_at":1794782925763}');
CREATE TABLE engine_entries (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    thread  INTEGER NOT NULL,
    parent  INTEGER,                -- always a lower number, so a path cannot run in a circle
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
INSERT INTO "engine_entries" VALUES(1,1,1,NULL,'01a1e166-11e4-725e-ac11-a583693583da','{"id":"01a1e166-11e4-725e-ac11-a583693583da","session":"01a1e166-117f-77ca-9e1b-2a628ec150af","thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","parent":null,"item":"01a1e166-11e4-725e-ac11-a582dfd42e8d","kind":{"type":"message","role":"user","parts":[{"type":"text","text":"say hello"}]},"created_at":1794782925284,"hash":"319f822f32571b0ddd1fcf166eccf93ed62e158bbedbcf55309ad85deba3b1e6"}');
INSERT INTO "engine_entries" VALUES(2,1,1,1,'01a1e166-1204-728c-8995-b5597fbf82f5','{"id":"01a1e166-1204-728c-8995-b5597fbf82f5","session":"01a1e166-117f-77ca-9e1b-2a628ec150af","thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","parent":"01a1e166-11e4-725e-ac11-a583693583da","item":"01a1e166-11e4-725e-ac11-a582dfd42e8d","kind":{"type":"message","role":"assistant","parts":[{"type":"text","text":"hello"}],"model":"scripted:plain.yaml","stop_reason":"end_turn"},"created_at":1794782925316,"hash":"700ec0a2ea3ce95ba0cf0e90433d78cfe5a0f76f4f5cfa1c724ef93a2c7b5f58"}');
INSERT INTO "engine_entries" VALUES(3,2,2,NULL,'01a1e166-13a7-740b-be13-507d575589cc','{"id":"01a1e166-13a7-740b-be13-507d575589cc","session":"01a1e166-131a-71d5-a498-8b9abd648106","thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","parent":null,"item":"01a1e166-13a7-740b-be13-507c4d5c1368","kind":{"type":"message","role":"user","parts":[{"type":"text","text":"go"}]},"created_at":1794782925735,"hash":"12f2d18154dcc1a76c6b03fdfdb093bbde7c50f471f3674151b0b93607de3e5f"}');
INSERT INTO "engine_entries" VALUES(4,2,2,3,'01a1e166-13ab-72d0-a16f-5c4a6621ed2b','{"id":"01a1e166-13ab-72d0-a16f-5c4a6621ed2b","session":"01a1e166-131a-71d5-a498-8b9abd648106","thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","parent":"01a1e166-13a7-740b-be13-507d575589cc","item":"01a1e166-13a7-740b-be13-507c4d5c1368","kind":{"type":"message","role":"assistant","parts":[{"type":"tool_call","call_id":"call-0-0","tool":"bash","args":{"command":"echo ran >> out.txt"}}],"model":"scripted:agent.yaml","stop_reason":"tool_use"},"created_at":1794782925739,"hash":"3106232f2ad4576b72654b500efaab250d968489456cad3b582f16cd210a9230"}');
INSERT INTO "engine_entries" VALUES(5,2,2,4,'01a1e166-13c3-7786-8dbe-291978ae3336','{"id":"01a1e166-13c3-7786-8dbe-291978ae3336","session":"01a1e166-131a-71d5-a498-8b9abd648106","thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","parent":"01a1e166-13ab-72d0-a16f-5c4a6621ed2b","item":"01a1e166-13a7-740b-be13-507c4d5c1368","kind":{"type":"decision_gate","gate":"gate:01a1e166-131a-71d5-a498-8b9abd648106:01a1e166-13a3-7499-b128-4bc5a9a3bd8a:01a1e166-13a7-740b-be13-507c4d5c1368:call-0-0:c39ac2d21a580226acfa33ef21197746","title":"run: echo ran >> out.txt"},"created_at":1794782925763,"hash":"861f5bf4f97e7ec59af7b7a22c8d6f9212e434c25f9897c14b3c448bf05b9027"}');
CREATE TABLE engine_events (
    session  INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    doc      TEXT NOT NULL,
    PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID;
INSERT INTO "engine_events" VALUES(1,1,'{"thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","at":1794782925283,"kind":{"type":"thread_start","key":"default"}}');
INSERT INTO "engine_events" VALUES(1,2,'{"thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","at":1794782925284,"kind":{"type":"message_end","entry":"01a1e166-11e4-725e-ac11-a583693583da"}}');
INSERT INTO "engine_events" VALUES(1,3,'{"thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","at":1794782925284,"kind":{"type":"queue_state","running":"01a1e166-11e4-725e-ac11-a582dfd42e8d","waiting":[]}}');
INSERT INTO "engine_events" VALUES(1,4,'{"thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","at":1794782925316,"kind":{"type":"message_end","entry":"01a1e166-1204-728c-8995-b5597fbf82f5"}}');
INSERT INTO "engine_events" VALUES(1,5,'{"thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","at":1794782925316,"kind":{"type":"usage","usage":{"turns":1,"input_tokens":1200,"cached_tokens":0,"output_tokens":40,"micro_dollars":0}}}');
INSERT INTO "engine_events" VALUES(1,6,'{"thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","at":1794782925316,"kind":{"type":"turn_end","item":"01a1e166-11e4-725e-ac11-a582dfd42e8d","reason":"end_turn"}}');
INSERT INTO "engine_events" VALUES(2,1,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925731,"kind":{"type":"thread_start","key":"default"}}');
INSERT INTO "engine_events" VALUES(2,2,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925735,"kind":{"type":"message_end","entry":"01a1e166-13a7-740b-be13-507d575589cc"}}');
INSERT INTO "engine_events" VALUES(2,3,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925735,"kind":{"type":"queue_state","running":"01a1e166-13a7-740b-be13-507c4d5c1368","waiting":[]}}');
INSERT INTO "engine_events" VALUES(2,4,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925739,"kind":{"type":"message_end","entry":"01a1e166-13ab-72d0-a16f-5c4a6621ed2b"}}');
INSERT INTO "engine_events" VALUES(2,5,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925739,"kind":{"type":"usage","usage":{"turns":1,"input_tokens":1,"cached_tokens":0,"output_tokens":10,"micro_dollars":0}}}');
INSERT INTO "engine_events" VALUES(2,6,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925739,"kind":{"type":"tool_start","call":"call-0-0","tool":"bash"}}');
INSERT INTO "engine_events" VALUES(2,7,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925763,"kind":{"type":"message_end","entry":"01a1e166-13c3-7786-8dbe-291978ae3336"}}');
INSERT INTO "engine_events" VALUES(2,8,'{"thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","at":1794782925763,"kind":{"type":"decision_gate","gate":{"id":"gate:01a1e166-131a-71d5-a498-8b9abd648106:01a1e166-13a3-7499-b128-4bc5a9a3bd8a:01a1e166-13a7-740b-be13-507c4d5c1368:call-0-0:c39ac2d21a580226acfa33ef21197746","kind":"approval","title":"run: echo ran >> out.txt","body":"echo ran >> out.txt","actions":[{"id":"approve","label":"Approve"},{"id":"deny","label":"Deny"}],"status":{"type":"pending"},"origin":{"session":"01a1e166-131a-71d5-a498-8b9abd648106","thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","item":"01a1e166-13a7-740b-be13-507c4d5c1368","call":"call-0-0","tool":"bash","resume_key":"call-0-0:c39ac2d21a580226acfa33ef21197746"},"expires_at":null,"created_at":1794782925763}}}');
CREATE TABLE engine_inbox (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
INSERT INTO "engine_inbox" VALUES(1,2,'{"thread":null,"order":"pause"}');
CREATE TABLE engine_leases (
    epoch    INTEGER PRIMARY KEY AUTOINCREMENT,
    session  TEXT NOT NULL UNIQUE,
    host     TEXT NOT NULL,
    process  TEXT NOT NULL,         -- PID:START:BOOT
    instance INTEGER NOT NULL       -- which store of that process
) STRICT;
CREATE TABLE engine_posts (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    source  TEXT NOT NULL
) STRICT;
CREATE TABLE engine_queue_items (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    thread  INTEGER NOT NULL,
    id      TEXT NOT NULL,
    status  TEXT NOT NULL,
    asked   BLOB NOT NULL,          -- the hash of what was asked, whatever became of it
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
INSERT INTO "engine_queue_items" VALUES(1,1,1,'01a1e166-11e4-725e-ac11-a582dfd42e8d','done',X'F87AB38C38BE4885B4D5A5D457C3CBBA4E48BB75D75A38F82F86CD581C977BAC','{"id":"01a1e166-11e4-725e-ac11-a582dfd42e8d","session":"01a1e166-117f-77ca-9e1b-2a628ec150af","thread":"01a1e166-11e3-742d-9188-f36d2d2c18cf","order":1099511627776,"content":"say hello","model":"scripted:plain.yaml","mode":"followup","status":"done","created_at":1794782925284}');
INSERT INTO "engine_queue_items" VALUES(2,2,2,'01a1e166-13a7-740b-be13-507c4d5c1368','running',X'8474F0356578919AD3933629B5B98DC79DB424E24688F88E32637146D702EF82','{"id":"01a1e166-13a7-740b-be13-507c4d5c1368","session":"01a1e166-131a-71d5-a498-8b9abd648106","thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","order":1099511627776,"content":"go","model":"scripted:agent.yaml","mode":"followup","status":"running","created_at":1794782925735}');
CREATE TABLE engine_sessions (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    user_id TEXT,
    fixed   TEXT NOT NULL,          -- what never changes: a second session of the same id differs in it
    usage   TEXT NOT NULL,          -- the truth of it; that in `doc` is as old as the row
    doc     TEXT NOT NULL
, parent TEXT
    GENERATED ALWAYS AS (doc ->> '$.parent.session') VIRTUAL) STRICT;
INSERT INTO "engine_sessions" VALUES(1,'01a1e166-117f-77ca-9e1b-2a628ec150af',NULL,'[null,null,"interactive",null,0,1794782925183]','{"turns":1,"input_tokens":1200,"cached_tokens":0,"output_tokens":40,"micro_dollars":0}','{"id":"01a1e166-117f-77ca-9e1b-2a628ec150af","user_id":null,"org_id":null,"workspace":"/tmp/rec_fix/project","purpose":"interactive","status":"running","sandbox":{"kind":"virtual","id":"01a1e166-117f-77ca-9e1b-2a63d3fce77c"},"snapshot_id":null,"parent":null,"depth":0,"model":"scripted:plain.yaml","limits":{"turns":null,"tokens":null,"micro_dollars":null,"depth":null,"until":null},"usage":{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0},"metadata":{},"created_at":1794782925183,"updated_at":1794782925183}');
INSERT INTO "engine_sessions" VALUES(2,'01a1e166-131a-71d5-a498-8b9abd648106',NULL,'[null,null,"interactive",null,0,1794782925594]','{"turns":1,"input_tokens":1,"cached_tokens":0,"output_tokens":10,"micro_dollars":0}','{"id":"01a1e166-131a-71d5-a498-8b9abd648106","user_id":null,"org_id":null,"workspace":"/tmp/rec_fix/project","purpose":"interactive","status":"running","sandbox":{"kind":"local","id":"01a1e166-131a-71d5-a498-8b9b4dde2523"},"snapshot_id":null,"parent":null,"depth":0,"model":"scripted:agent.yaml","limits":{"turns":null,"tokens":null,"micro_dollars":null,"depth":null,"until":null},"usage":{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0},"metadata":{},"created_at":1794782925594,"updated_at":1794782925594}');
CREATE TABLE engine_suspended_turns (
    number  INTEGER PRIMARY KEY,
    gate    TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
INSERT INTO "engine_suspended_turns" VALUES(1,'gate:01a1e166-131a-71d5-a498-8b9abd648106:01a1e166-13a3-7499-b128-4bc5a9a3bd8a:01a1e166-13a7-740b-be13-507c4d5c1368:call-0-0:c39ac2d21a580226acfa33ef21197746',2,'{"gate":"gate:01a1e166-131a-71d5-a498-8b9abd648106:01a1e166-13a3-7499-b128-4bc5a9a3bd8a:01a1e166-13a7-740b-be13-507c4d5c1368:call-0-0:c39ac2d21a580226acfa33ef21197746","session":"01a1e166-131a-71d5-a498-8b9abd648106","thread":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","item":"01a1e166-13a7-740b-be13-507c4d5c1368","model":"scripted:agent.yaml","leaf":"01a1e166-13c3-7786-8dbe-291978ae3336","call":"call-0-0","tool":"bash","args":{"command":"echo ran >> out.txt"},"resume_key":"call-0-0:c39ac2d21a580226acfa33ef21197746","attempt":1,"chain_hash":null}');
CREATE TABLE engine_threads (
    number     INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL,
    id         TEXT NOT NULL,
    key        TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
INSERT INTO "engine_threads" VALUES(1,1,'01a1e166-11e3-742d-9188-f36d2d2c18cf','default',1794782925283,'{"id":"01a1e166-11e3-742d-9188-f36d2d2c18cf","session":"01a1e166-117f-77ca-9e1b-2a628ec150af","key":"default","status":"active","leaf":"01a1e166-1204-728c-8995-b5597fbf82f5","leaf_hash":"700ec0a2ea3ce95ba0cf0e90433d78cfe5a0f76f4f5cfa1c724ef93a2c7b5f58","mode":"followup","model":null,"summary":null,"turn":null,"metadata":{},"created_at":1794782925283,"updated_at":1794782925316}');
INSERT INTO "engine_threads" VALUES(2,2,'01a1e166-13a3-7499-b128-4bc5a9a3bd8a','default',1794782925731,'{"id":"01a1e166-13a3-7499-b128-4bc5a9a3bd8a","session":"01a1e166-131a-71d5-a498-8b9abd648106","key":"default","status":"active","leaf":"01a1e166-13c3-7786-8dbe-291978ae3336","leaf_hash":"861f5bf4f97e7ec59af7b7a22c8d6f9212e434c25f9897c14b3c448bf05b9027","mode":"followup","model":null,"summary":null,"turn":{"item":"01a1e166-13a7-740b-be13-507c4d5c1368","model":"scripted:agent.yaml","round":1,"phase":{"type":"tools","entry":"01a1e166-13ab-72d0-a16f-5c4a6621ed2b","calls":[{"id":"call-0-0","tool":"bash","state":{"type":"blocked","gate":"gate:01a1e166-131a-71d5-a498-8b9abd648106:01a1e166-13a3-7499-b128-4bc5a9a3bd8a:01a1e166-13a7-740b-be13-507c4d5c1368:call-0-0:c39ac2d21a580226acfa33ef21197746"}}]},"used":{"turns":1,"input_tokens":1,"cached_tokens":0,"output_tokens":10,"micro_dollars":0}},"metadata":{},"created_at":1794782925731,"updated_at":1794782925763}');
CREATE INDEX engine_sessions_user ON engine_sessions (user_id);
CREATE INDEX engine_entries_thread ON engine_entries (thread);
CREATE INDEX engine_queue_items_active ON engine_queue_items (session, thread, status)
    WHERE status IN ('waiting', 'running');
CREATE INDEX engine_decision_gates_item ON engine_decision_gates (session, item);
CREATE INDEX engine_decision_gates_pending ON engine_decision_gates (session) WHERE pending = 1;
CREATE INDEX engine_suspended_turns_session ON engine_suspended_turns (session);
CREATE INDEX engine_inbox_session ON engine_inbox (session);
CREATE INDEX engine_sessions_parent ON engine_sessions (parent) WHERE parent IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('engine_leases',2);
COMMIT;
